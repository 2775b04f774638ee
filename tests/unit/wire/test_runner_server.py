"""The parts of calls to a server that need no connection: addresses, retries, proxies and redirects."""

import pytest

from remuda.wire.http_session import environment_proxy
from remuda.wire.runner_server import api_root, is_retried, parse_retry_after, resolve_redirect


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("https://gitlab.example", "https://gitlab.example"),
        ("https://gitlab.example/", "https://gitlab.example"),
        ("https://gitlab.example/ci", "https://gitlab.example"),
        ("https://gitlab.example/prefix/ci/", "https://gitlab.example/prefix"),
    ],
)
def test_the_apis_root(url: str, root: str) -> None:
    assert api_root(url) == root


def test_which_statuses_are_tried_again() -> None:
    assert [status for status in range(200, 600) if is_retried(status)][:6] == [408, 429, 500, 502, 503, 504]
    assert is_retried(512)
    assert not is_retried(501)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({"RateLimit-ResetTime": "Thu, 01 Jan 1970 00:01:40 GMT", "Retry-After": "7"}, 60.0),
        ({"RateLimit-ResetTime": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({"RateLimit-ResetTime": "rubbish", "Retry-After": "7"}, 7.0),
    ],
)
def test_how_long_the_server_asks_to_wait(headers: dict[str, str], wait: float | None) -> None:
    assert parse_retry_after(headers, now=40.0) == wait


def test_proxies_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert environment_proxy("https://gitlab.example") is None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example,127.0.0.1")
    assert environment_proxy("https://gitlab.example") == "http://proxy:3128"
    assert environment_proxy("http://gitlab.example") is None
    assert environment_proxy("https://cell.inside.example") is None
    assert environment_proxy("https://127.0.0.1:8443") is None


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/elsewhere", "http://ci.example/elsewhere"),
        ("http://ci.example/elsewhere", "http://ci.example/elsewhere"),
        ("https://ci.example/api", "https://ci.example/api"),
        ("https://ci.example:8443/api", None),
        ("http://ci.example:81/api", None),
        ("https://evil.example/api", None),
        ("//evil.example/api", None),
        ("http://ci.example@evil.example/api", None),
        ("http://ci.example.evil.example/api", None),
        ("ftp://ci.example/api", None),
        ("http://[broken", None),
        ("", None),
    ],
)
def test_redirects_stay_on_the_server(location: str, target: str | None) -> None:
    assert resolve_redirect("http://ci.example/api", location) == target


def test_redirects_never_leave_tls() -> None:
    assert resolve_redirect("https://ci.example/api", "http://ci.example/api") is None
