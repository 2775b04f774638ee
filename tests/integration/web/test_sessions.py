"""Sessions of browsers: cookies, protection against other sites, their end, limits and the audit log."""

import contextlib
import hashlib
import sqlite3
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import playwright.sync_api
import pytest
from playwright.sync_api import Browser, expect
from tests.support.browser import Tab
from tests.support.cells.page_client import PageClient
from tests.support.cells.people import create_person
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.cell.web_settings import WebSettings
from remuda.testing.lab import free_port

PIPELINE = "job:\n  script: make\n  artifacts: {paths: [site]}\n"
PAGE = (
    b"<html><body><script>fetch('/api/v4/user').then(() => document.title = 'stolen')</script><img src=x></body></html>"
)


@pytest.fixture
def client(cell: ServedCell) -> PageClient:
    """A visitor who is signed in as the administrator."""
    visitor = PageClient(cell)
    visitor.sign_in(cell.token)
    return visitor


@contextlib.contextmanager
def served_behind_a_proxy(folder: Path, public_url: str, **settings: Any) -> Iterator[ServedCell]:
    """A cell with a public address that only a proxy serves. The test calls it directly."""
    port = free_port()
    with ServedCell(folder / "cell", port=port, public_url=public_url, **settings) as cell:
        cell.url = f"http://127.0.0.1:{port}"
        yield cell


def link_of(cell: ServedCell) -> str:
    url: str = cell.send("POST", "/api/remuda/v1/sign_in_links", PRIVATE_TOKEN=cell.token).json()["url"]
    return url.removeprefix(cell.url)


def list_events(cell: ServedCell, *actions: str) -> list[tuple[str, Any]]:
    found = [event for action in actions for event in cell.api("GET", f"/audit_events?action={action}").json()]
    return [(event["event_name"], event["details"]) for event in sorted(found, key=lambda event: event["id"])]


def test_the_cookie_is_only_for_this_cell(cell: ServedCell) -> None:
    answer = PageClient(cell).post_form("/-/sign-in", {"token": cell.token})
    assert answer.headers["Set-Cookie"].split("; ")[1:] == ["HttpOnly", "Max-Age=1209600", "Path=/", "SameSite=lax"]
    assert answer.headers["Cache-Control"] == "no-store"


def test_with_https_the_cookie_has_the_strictest_name(tmp_path: Path) -> None:
    web = WebSettings(session_seconds=60)
    with served_behind_a_proxy(tmp_path, "https://cell.example", web=web) as cell:
        client = PageClient(cell)
        answer = client.post_form("/-/sign-in", {"token": cell.token})
        name, *flags = answer.headers["Set-Cookie"].replace("=", "; ", 1).split("; ")
        assert name == "__Host-remuda_session"
        assert flags[1:] == ["HttpOnly", "Max-Age=60", "Path=/", "SameSite=lax", "Secure"]
        assert client.is_signed_in
        client.cookies = {"remuda_session": client.cookies[name]}
        assert not client.is_signed_in, "a cookie without the prefix may come from a neighbouring host"


def test_the_store_has_only_a_hash_of_the_secret(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell") as cell:
        client = PageClient(cell)
        client.sign_in(cell.token)
        link = link_of(cell)
    [secret], [code] = client.cookies.values(), [link.partition("code=")[2]]
    with sqlite3.connect(tmp_path / "cell" / "cell.sqlite") as database:
        rows = b"".join(
            row[0]
            for table in ("web_sessions", "sign_in_links")
            for row in database.execute(f"SELECT body FROM {table}")
        )
        hashes = [row[0] for row in database.execute("SELECT token_hash FROM web_sessions")]
    assert hashes == [hashlib.sha256(secret.encode()).hexdigest()]
    assert secret.encode() not in rows
    assert code.encode() not in rows


def test_a_change_needs_the_csrf_token_and_the_own_origin(client: PageClient, cell: ServedCell) -> None:
    body = {"name": "shop"}
    csrf = client.csrf()
    for headers in (
        {},
        {"X_CSRF_Token": "0" * 64},
        {"X_CSRF_Token": csrf[:-1]},
        {"Origin": cell.url},
        {"X_CSRF_Token": csrf, "Origin": "https://evil.example"},
        {"X_CSRF_Token": csrf, "Origin": "null"},
        {"X_CSRF_Token": csrf, "Sec_Fetch_Site": "cross-site"},
        {"X_CSRF_Token": csrf, "Sec_Fetch_Site": "same-site"},
    ):
        for method, path in (("POST", "/api/v4/projects"), ("DELETE", "/api/remuda/v1/sessions")):
            assert client.send(method, path, body, **headers).status == 403, headers
    form = b"name=shop"
    plain = {"Content_Type": "application/x-www-form-urlencoded"}
    assert client.send("POST", "/api/v4/projects", form, **plain).status == 403
    assert cell.api("GET", "/projects").json() == []
    assert client.send("POST", "/api/v4/projects", body, X_CSRF_Token=csrf).status == 201
    other = PageClient(cell)
    other.sign_in(cell.token)
    assert other.send("POST", "/api/v4/projects", {"name": "b"}, X_CSRF_Token=csrf).status == 403, "of another session"


def test_a_token_goes_before_the_cookie(client: PageClient, cell: ServedCell) -> None:
    ada = create_person(cell, "ada")
    assert client.get("/api/v4/user").json()["username"] == "root"
    assert client.get("/api/v4/user", PRIVATE_TOKEN=ada.token).json()["username"] == "ada"
    assert client.get("/api/v4/user", PRIVATE_TOKEN="wrong").status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "http://127.0.0.1.evil.example"},
    ],
)
def test_other_sites_sign_nobody_in_or_out(client: PageClient, cell: ServedCell, headers: dict[str, str]) -> None:
    stranger = PageClient(cell)
    assert stranger.post_form("/-/sign-in", {"token": cell.token}, **headers).status == 403
    assert stranger.cookies == {}
    assert client.post_form("/-/sign-out", {}, **headers).status == 403
    assert client.is_signed_in


def test_a_proxy_may_change_the_host(tmp_path: Path) -> None:
    with served_behind_a_proxy(tmp_path, "https://ci.example") as cell:
        client = PageClient(cell)
        fields = {"token": cell.token}
        assert client.post_form("/-/sign-in", fields, Host="backend", Origin="https://ci.example").status == 303
        assert client.post_form("/-/sign-in", fields, Host="backend", Origin="https://backend.ci").status == 403


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.example",
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        " //evil.example",
        "javascript:alert(1)",
        "http:evil.example",
        "evil",
        "//[",
        "/%2Fevil.example",
        "/%5Cevil.example",
        "%2F%2Fevil.example",
        "",
    ],
)
def test_the_form_redirects_nowhere_else(cell: ServedCell, address: str) -> None:
    client = PageClient(cell)
    answer = client.post_form("/-/sign-in", {"token": cell.token, "return_to": address})
    assert (answer.status, answer.headers["Location"]) == (303, "/")


def test_signing_in_begins_a_new_session(client: PageClient, cell: ServedCell) -> None:
    """A secret that somebody else has put into the browser is never used."""
    client.cookies["remuda_session"] = "chosen-by-somebody-else"
    assert not client.is_signed_in
    client.sign_in(cell.token)
    assert client.cookies["remuda_session"] != "chosen-by-somebody-else"
    assert client.is_signed_in


def test_a_session_ends_with_its_token(cell: ServedCell) -> None:
    ada = create_person(cell, "ada")
    client = PageClient(cell)
    client.sign_in(ada.token)
    token = ada.api("GET", "/personal_access_tokens/self").json()
    assert client.get("/api/v4/personal_access_tokens/self").json()["id"] == token["id"]
    assert ada.api("DELETE", f"/personal_access_tokens/{token['id']}").status == 204
    assert client.get("/api/v4/user").status == 401
    answer = client.get("/-/profile")
    assert (answer.status, answer.headers["Location"]) == (303, "/-/sign-in?return_to=%2F-%2Fprofile")


def test_a_session_ends_when_its_user_is_blocked_or_removed(cell: ServedCell) -> None:
    for end in ("POST /users/{}/block", "DELETE /users/{}"):
        ada = create_person(cell, f"ada{len(end)}")
        client = PageClient(cell)
        client.sign_in(ada.token)
        link = cell.send("POST", "/api/remuda/v1/sign_in_links", PRIVATE_TOKEN=ada.token).json()["url"]
        method, path = end.format(ada.id).split()
        assert cell.api(method, path).status in (201, 204)
        assert client.get("/api/v4/user").status == 401
        assert PageClient(cell).get(link.removeprefix(cell.url)).status == 422


def test_a_link_ends_with_its_token(cell: ServedCell) -> None:
    ada = create_person(cell, "ada")
    link = cell.send("POST", "/api/remuda/v1/sign_in_links", PRIVATE_TOKEN=ada.token).json()["url"]
    ada.api("DELETE", "/personal_access_tokens/self")
    assert PageClient(cell).get(link.removeprefix(cell.url)).status == 422


def test_another_site_cannot_use_a_link(cell: ServedCell) -> None:
    link = cell.send("POST", "/api/remuda/v1/sign_in_links", PRIVATE_TOKEN=cell.token).json()["url"]
    path = link.removeprefix(cell.url)
    victim = PageClient(cell)
    refused = victim.get(path, Sec_Fetch_Site="cross-site")
    assert (refused.status, victim.is_signed_in) == (422, False)
    assert victim.get(path, Sec_Fetch_Site="none").status == 303
    assert victim.is_signed_in


@pytest.mark.parametrize("path", ["/%2Fevil.example", "//evil.example/", "/%2F%2Fevil.example", "/%5Cevil.example"])
def test_no_page_redirects_to_another_host(client: PageClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status == 404
    assert answer.headers["Location"] is None


def test_a_session_expires(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", web=WebSettings(session_seconds=0.001)) as cell:
        client = PageClient(cell)
        client.post_form("/-/sign-in", {"token": cell.token})
        assert not client.is_signed_in


def test_a_session_has_the_scopes_of_its_token(cell: ServedCell) -> None:
    ada = create_person(cell, "ada")
    client = PageClient(cell)
    client.sign_in(ada.with_scopes("read_api").token)
    assert client.get("/api/v4/projects").status == 200
    assert client.call("POST", "/api/v4/projects", {"name": "x"}).status == 403
    answer = PageClient(cell).post_form("/-/sign-in", {"token": ada.with_scopes("read_user").token})
    assert answer.status == 422
    assert "cannot read the API" in answer.body.decode()


def test_sessions_of_others_are_hidden(client: PageClient, cell: ServedCell) -> None:
    ada = create_person(cell, "ada")
    [session] = client.get("/api/remuda/v1/sessions").json()
    assert session["current"]
    assert cell.send("GET", "/api/remuda/v1/sessions", PRIVATE_TOKEN=ada.token).json() == []
    path = f"/api/remuda/v1/sessions/{session['id']}"
    assert cell.send("DELETE", path, PRIVATE_TOKEN=ada.token).status == 404
    assert cell.send("DELETE", "/api/remuda/v1/sessions", PRIVATE_TOKEN=ada.token).status == 204
    assert client.is_signed_in


def test_sign_ins_are_limited_by_address(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", anonymous_requests_per_minute=20) as cell:
        client = PageClient(cell)
        statuses = [
            client.post_form(f"/-/sign-in?private_token=invented{n}", {"token": f"guess-{n}"}).status for n in range(25)
        ]
        assert statuses[:15] == [422] * 15
        assert statuses[-1] == 429
        statuses = [client.get(f"/-/sign-in?private_token=invented{n}").status for n in range(5)]
        assert statuses == [429] * 5, "an invented token gives no limit of its own"
        assert client.get("/-/sign-in/link?code=guess").status == 429
        assert client.get("/-/health").status == 200


def test_invented_tokens_do_not_lift_the_limit(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", anonymous_requests_per_minute=20) as cell:
        client = PageClient(cell)
        for _ in range(10):
            assert client.get("/-/sign-in?private_token=invented").status == 200
        statuses = [client.post_form("/-/sign-in?private_token=invented", {"token": "x"}).status for _ in range(20)]
        assert 429 in statuses


def test_sign_ins_are_in_the_audit_log(client: PageClient, cell: ServedCell) -> None:
    PageClient(cell).get(link_of(cell))
    PageClient(cell).post_form("/-/sign-in", {"token": "a-guess"})
    other = PageClient(cell)
    other.sign_in(cell.token)
    sessions = client.get("/api/remuda/v1/sessions").json()
    newest = next(session["id"] for session in sessions if not session["current"])
    assert client.call("DELETE", f"/api/remuda/v1/sessions/{newest}").status == 204
    assert client.call("DELETE", "/api/remuda/v1/sessions").status == 204
    client.post_form("/-/sign-out", {})
    names = ("signed_in", "sign_in_link_created", "sign_in_refused", "session_ended", "sessions_ended", "signed_out")
    events = list_events(cell, *names)
    assert [name for name, _ in events] == [
        "signed_in",
        "sign_in_link_created",
        "signed_in",
        "sign_in_refused",
        "signed_in",
        "session_ended",
        "sessions_ended",
        "signed_out",
    ]
    assert [details.get("method") for name, details in events if name == "signed_in"] == ["token", "link", "token"]
    assert "a-guess" not in str(events)
    assert not any(secret in str(events) for secret in (*client.cookies.values(), cell.token))


def test_refused_sign_ins_do_not_fill_the_audit_log(cell: ServedCell) -> None:
    client = PageClient(cell)
    for number in range(30):
        client.post_form("/-/sign-in", {"token": f"guess-{number}"})
    assert len(list_events(cell, "sign_in_refused")) <= 12


def test_what_a_job_has_uploaded_is_never_a_page(browser: Browser, cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("shop", PIPELINE)
    job = runner.take()
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("site/index.html", PAGE)
        files.writestr("site/a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
        files.writestr("site/a.js", b"alert(1)")
    assert runner.upload(job, archive.getvalue()).status == 201
    assert runner.patch(job, 0, PAGE).status == 202
    runner.put(job, "success")
    root = f"/api/v4/projects/1/jobs/{job['id']}"
    client = PageClient(cell)
    client.sign_in(cell.token)
    paths = [f"{root}/artifacts/site/{name}" for name in ("index.html", "a.svg", "a.js")]
    paths += [f"{root}/trace", "/api/v4/projects/1/repository/files/.gitlab-ci.yml/raw?ref=main", f"{root}/artifacts"]
    for path in paths:
        answer = client.get(path)
        assert answer.status == 200, path
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    with Tab(browser, cell.url) as tab:
        tab.sign_in(cell.token)
        for path in paths[:2]:
            # A file that the cell sends as a download never opens at all.
            with contextlib.suppress(playwright.sync_api.Error):
                tab.page.goto(path)
            assert tab.page.title() != "stolen"
            assert not any("alert" in problem for problem in tab.problems)
        tab.problems.clear()
        tab.page.goto("/-/profile")
        expect(tab.find("username")).to_have_text("root")
