import pytest

from remuda.lib.exits import BadInputError
from remuda.localrun.sources.remote_files import Remote, read_allowed
from remuda.pipeline import SourceProblem
from remuda.pipeline.include.allowed_addresses import read_prefix


def allows(entry: str, url: str) -> bool:
    address = read_prefix(url)
    return address is not None and any(prefix.covers(address) for prefix in read_allowed([entry]))


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("example.org", "https://example.org/a/b.yml"),
        ("example.org:8443", "https://example.org:8443/b.yml"),
        ("https://example.org", "https://EXAMPLE.org:443/b.yml"),
        ("https://example.org/ci", "https://example.org/ci/b.yml"),
        ("https://example.org/ci/", "https://example.org/ci/b.yml?ref=main"),
        ("http://localhost:8080/b.yml", "http://localhost:8080/b.yml"),
    ],
)
def test_allowed_addresses(entry: str, url: str) -> None:
    assert allows(entry, url)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/ci/b.yml",
        "https://example.org:444/ci/b.yml",
        "https://example.org/ci-evil/b.yml",
        "https://example.org/other/b.yml",
        "https://example.org/ci/../other/b.yml",
        "https://example.org/ci/%2e%2e/other/b.yml",
        "https://example.org/ci/%252e%252e/other/b.yml",
        "https://example.org/ci\\..\\other\\b.yml",
        "https://example.org/ci/a%2f..%2f..%2fother/b.yml",
        "https://example.org/ci/..;x/other/b.yml",
        "https://example.org.evil.net/ci/b.yml",
        "https://example.org@evil.net/ci/b.yml",
        "https://user@example.org/ci/b.yml",
        "https://evil.net/?https://example.org/ci/b.yml",
        "https://example.org:port/ci/b.yml",
        "file:///ci/b.yml",
        "https:///ci/b.yml",
        "https://[/ci/b.yml",
    ],
)
def test_refused_addresses(url: str) -> None:
    assert not allows("https://example.org/ci", url)


@pytest.mark.parametrize("entry", ["", "ftp://example.org/", "https://", "https://a@b/", "a b"])
def test_an_invalid_entry(entry: str) -> None:
    with pytest.raises(BadInputError, match="--allow-remote"):
        read_allowed([entry])


def test_without_a_list_nothing_is_fetched() -> None:
    problem = Remote().text("https://example.org/ci/a.yml")
    assert isinstance(problem, SourceProblem)
    assert problem.suggestion.startswith("pass --allow-remote https://example.org/, or set allow-remote = ")
    hostile = Remote().text("https://ex\x1b[31mample.org/\0")
    assert isinstance(hostile, SourceProblem)
    assert "\x1b" not in hostile.suggestion
