"""Sign-in with OpenID Connect: a real provider in a browser, and one that forges everything it can."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from playwright.sync_api import Browser, expect
from tests.support.browser import Tab
from tests.support.cells.page_client import PageClient
from tests.support.cells.people import add_member, create_group, create_person
from tests.support.cells.served_cell import Answer, ServedCell
from tests.support.servers.oidc_provider import PROGRAM, ForgingProvider, run_forging_provider, run_real_provider

from remuda.cell.web_settings import OidcSettings, WebSettings
from remuda.lib.clock import Clock, SystemClock


class SteppingClock(SystemClock):
    """The system's clock, whose monotonic time a test can put ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def make_cell(folder: Path, issuer: str, *, clock: Clock | None = None, **more: Any) -> ServedCell:
    oidc = OidcSettings(**({"issuer": issuer, "client_id": "cell", "client_secret": "s/cret"} | more))
    return ServedCell(folder / "cell", clock, web=WebSettings(oidc=oidc))


@pytest.fixture
def provider() -> Iterator[ForgingProvider]:
    with run_forging_provider() as state:
        yield state


@pytest.fixture
def cell(tmp_path: Path, provider: ForgingProvider) -> Iterator[ServedCell]:
    with make_cell(
        tmp_path, provider.url, admin_groups=("root",), members=("devs=acme:developer", "leads=acme:owner")
    ) as served:
        yield served


def begin(client: PageClient, return_to: str = "/") -> str:
    """Begin a sign-in. Returns the address at the provider."""
    answer = client.get(f"/-/sign-in/oidc?return_to={quote(return_to, safe='')}")
    assert answer.status == 303, answer
    return answer.headers["Location"]


def sign_in(client: PageClient, provider: ForgingProvider, return_to: str = "/") -> Answer:
    """Sign in with the provider. Returns the answer of the cell to the provider's answer."""
    return client.get(provider.authorize(begin(client, return_to)))


def events(cell: ServedCell, action: str) -> list[dict[str, Any]]:
    answer = cell.api("GET", f"/audit_events?action={action}")
    assert answer.status == 200, answer
    return [event["details"] | {"author": event["author_id"]} for event in answer.json()]


def test_a_real_provider_signs_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM} is missing; `make test` installs it, or: make .venv-peers/.installed")
    ada = {"sub": "7", "preferred_username": "ada", "name": "Ada Lovelace", "groups": ["root"]}
    with (
        run_real_provider(tmp_path, ada) as url,
        make_cell(tmp_path, url, admin_groups=("root",)) as cell,
        Tab(browser, cell.url) as tab,
    ):
        tab.page.goto("/-/profile")
        expect(tab.find("sign-in-oidc")).to_have_text(f"Sign in with {url.removeprefix('http://')}")
        tab.check_accessibility()
        tab.find("sign-in-oidc").click()
        tab.page.get_by_role("button", name="7", exact=True).click()
        tab.problems.clear()  # of the provider's own page, which loads styles from elsewhere
        expect(tab.find("username")).to_have_text("ada")
        assert tab.page.url == f"{cell.url}/-/profile"
        expect(tab.page.get_by_text("administrator of this cell")).to_be_visible()


def test_a_user_is_created_once_and_found_by_the_id_of_the_provider(
    cell: ServedCell, provider: ForgingProvider
) -> None:
    client = PageClient(cell)
    answer = sign_in(client, provider, "/-/profile?a=1&b=%2F")
    assert (answer.status, answer.headers["Location"]) == (303, "/-/profile?a=1&b=%2F")
    user = client.call("GET", "/api/v4/user").json()
    assert (user["username"], user["name"], user["is_admin"]) == ("ada", "Ada", False)
    provider.claims = {"sub": "u-1", "preferred_username": "renamed"}
    other = PageClient(cell)
    sign_in(other, provider)
    assert other.get("/api/v4/user").json()["id"] == user["id"]
    assert [event["method"] for event in events(cell, "signed_in")] == ["oidc", "oidc"]
    # The session has the rights of a token with the scope api, and no token.
    assert other.get("/api/v4/personal_access_tokens/self").status == 404
    assert other.call("POST", "/api/v4/personal_access_tokens/self/rotate", {}).status == 404
    assert other.call("DELETE", "/api/v4/personal_access_tokens/self").status == 404
    assert other.is_signed_in


def test_groups_of_the_provider_give_and_take_rights(cell: ServedCell, provider: ForgingProvider) -> None:
    group = create_group(cell, "acme")
    mine = create_group(cell, "other")

    def levels() -> dict[str, int]:
        members = {name: cell.api("GET", f"/groups/{name}/members").json() for name in ("acme", "other")}
        return {name: m["access_level"] for name, found in members.items() for m in found if m["username"] == "ada"}

    client = PageClient(cell)
    provider.claims["groups"] = ["devs", "leads", "root"]
    sign_in(client, provider)
    user = client.get("/api/v4/user").json()
    assert user["is_admin"]
    assert levels() == {"acme": 50}
    cell.api("POST", f"/groups/{mine}/members", {"user_id": user["id"], "access_level": 30})
    provider.claims["groups"] = ["devs"]
    sign_in(PageClient(cell), provider)
    assert levels() == {"acme": 30, "other": 30}
    assert not client.get("/api/v4/user").json()["is_admin"]
    provider.claims["groups"] = []
    sign_in(PageClient(cell), provider)
    assert levels() == {"other": 30}
    assert group


def test_somebody_elses_name_is_not_taken(cell: ServedCell, provider: ForgingProvider, tmp_path: Path) -> None:
    create_person(cell, "ada")
    create_group(cell, "tools")
    for name, reason in (("ada", "There is a user ada"), ("ROOT", "There is a user root"), ("tools", "is taken here")):
        provider.claims = {"sub": f"u-{name}", "preferred_username": name}
        client = PageClient(cell)
        answer = sign_in(client, provider)
        assert answer.status == 403
        assert reason in answer.body.decode()
        assert not client.is_signed_in


def test_users_are_linked_where_the_settings_allow_it(tmp_path: Path, provider: ForgingProvider) -> None:
    with make_cell(tmp_path, provider.url, link_users=True, create_users=False) as cell:
        ada = create_person(cell, "ada")
        client = PageClient(cell)
        assert sign_in(client, provider).status == 303
        assert client.get("/api/v4/user").json()["id"] == ada.id
        provider.claims = {"sub": "another", "preferred_username": "ada"}
        assert "There is a user ada here already" in sign_in(PageClient(cell), provider).body.decode()
        provider.claims = {"sub": "third", "preferred_username": "bob"}
        assert "There is no user bob here" in sign_in(PageClient(cell), provider).body.decode()


def test_only_allowed_groups_and_valid_names(tmp_path: Path, provider: ForgingProvider) -> None:
    with make_cell(tmp_path, provider.url, allowed_groups=("ci",), label="Login <b>") as cell:
        for claims, reason in (
            ({"groups": ["x"]}, "Login &lt;b&gt; does not list you"),
            ({}, "sent no list of groups (claim groups)"),
            ({"groups": ["ci"], "preferred_username": "<script>alert(1)</script>"}, "sent no user name"),
            ({"groups": ["ci"], "preferred_username": None}, "sent no user name"),
        ):
            provider.claims = {"sub": "u", "preferred_username": "ada"} | claims
            answer = sign_in(PageClient(cell), provider)
            assert answer.status == 403
            assert reason in answer.body.decode()
        refusals = events(cell, "sign_in_refused")
        assert [event["reason"] for event in refusals][-1] == "not in an allowed group"
        assert {event["method"] for event in refusals} == {"oidc"}


def test_claims_that_only_userinfo_has(tmp_path: Path, provider: ForgingProvider) -> None:
    with make_cell(tmp_path, provider.url, allowed_groups=("ci",)) as cell:
        provider.claims = {"sub": "u-1"}
        provider.userinfo = {"sub": "u-1", "preferred_username": "ada", "groups": ["ci"]}
        client = PageClient(cell)
        assert sign_in(client, provider).status == 303
        assert client.get("/api/v4/user").json()["username"] == "ada"
        provider.userinfo = {"sub": "u-2", "preferred_username": "ada", "groups": ["ci"]}
        assert "about another user" in sign_in(PageClient(cell), provider).body.decode()


def forge_cases() -> dict[str, Any]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    now = int(time.time())
    return {
        "wrong key": lambda p: lambda claims: p.sign(claims, key),
        "alg none": lambda p: lambda claims: jwt.encode(claims, "", "none"),
        "shared secret": lambda p: lambda claims: jwt.encode(claims, "s/cret" * 8, "HS256"),
        "wrong audience": lambda p: lambda claims: p.sign(claims | {"aud": "other"}),
        "wrong issuer": lambda p: lambda claims: p.sign(claims | {"iss": "https://evil.example"}),
        "other nonce": lambda p: lambda claims: p.sign(claims | {"nonce": "x"}),
        "no nonce": lambda p: lambda claims: p.sign({k: v for k, v in claims.items() if k != "nonce"}),
        "expired": lambda p: lambda claims: p.sign(claims | {"iat": now - 900, "exp": now - 600}),
        "for another party": lambda p: lambda claims: p.sign(claims | {"aud": ["cell", "x"], "azp": "x"}),
        "garbage": lambda p: lambda claims: "garbage",
    }


@pytest.mark.parametrize("name", forge_cases())
def test_a_forged_token_signs_in_nobody(cell: ServedCell, provider: ForgingProvider, name: str) -> None:
    provider.forge = forge_cases()[name](provider)
    client = PageClient(cell)
    answer = sign_in(client, provider)
    assert answer.status == 403
    assert "answer is not valid" in answer.body.decode()
    assert client.cookies == {}
    assert cell.api("GET", "/users?username=ada").json() == []


def test_an_answer_works_once_and_in_one_browser(cell: ServedCell, provider: ForgingProvider) -> None:
    client = PageClient(cell)
    callback = provider.authorize(begin(client))
    cookies = dict(client.cookies)
    stranger = PageClient(cell)
    begin(stranger)
    for other in (PageClient(cell), stranger):
        answer = other.get(callback)
        assert answer.status == 403
        assert "belongs to no sign-in of this browser" in answer.body.decode()
    assert client.get(callback).status == 303
    client.cookies.clear()
    assert client.get(callback).status == 403
    # With a stolen cookie, too: the provider takes a code once.
    client.cookies = cookies
    assert "was used already" in client.get(callback).body.decode()
    assert not client.is_signed_in


def test_the_state_and_the_issuer_are_checked(cell: ServedCell, provider: ForgingProvider) -> None:
    changes: list[Callable[[str], str]] = [
        lambda url: url.replace("state=", "state=x"),
        lambda url: url.partition("&state=")[0],
        lambda url: url.partition("&iss=")[0],
        lambda url: url + "x",
        lambda url: url.replace("code=", "c="),
    ]
    for change in changes:
        client = PageClient(cell)
        answer = client.get(change(provider.authorize(begin(client))))
        assert answer.status == 403, answer
        assert not client.is_signed_in


def test_a_refusal_of_the_provider_is_shown(cell: ServedCell, provider: ForgingProvider) -> None:
    client = PageClient(cell)
    address = provider.authorize(begin(client))
    answer = client.get(address.replace("code=", "error=access_denied&error_description=<b>no</b>&x="))
    assert answer.status == 403
    assert "has not signed you in: access_denied &lt;b&gt;no&lt;/b&gt;." in answer.body.decode()


def test_a_wrong_cookie_is_refused(cell: ServedCell, provider: ForgingProvider) -> None:
    for value in ("x", "e30", "%00", "eyJzdGF0ZSI6MX0", "A" * 5000):
        client = PageClient(cell)
        callback = provider.authorize(begin(client))
        client.cookies["remuda_oidc"] = value
        assert client.get(callback).status == 403


def test_redirects_stay_on_the_cell(cell: ServedCell, provider: ForgingProvider) -> None:
    for address in ("https://evil.example", "//evil.example", "/\\evil.example", "/\t/evil.example", "javascript:x"):
        assert sign_in(PageClient(cell), provider, address).headers["Location"] == "/"


def test_the_cookies_belong_to_the_cell(cell: ServedCell, provider: ForgingProvider) -> None:
    client = PageClient(cell)
    answer = client.get("/-/sign-in/oidc")
    assert answer.headers["Set-Cookie"].split("; ")[1:] == ["HttpOnly", "Max-Age=600", "Path=/", "SameSite=lax"]
    assert provider.url in answer.headers["Location"]


def test_keys_are_cached_and_may_change(tmp_path: Path, provider: ForgingProvider) -> None:
    clock = SteppingClock()
    with make_cell(tmp_path, provider.url, clock=clock) as cell:
        for _ in range(2):
            assert sign_in(PageClient(cell), provider).status == 303
        assert provider.requests.count("/keys") == 1
        assert provider.requests.count("/.well-known/openid-configuration") == 1
        provider.keys.clear()
        provider.add_key("k2")
        assert sign_in(PageClient(cell), provider).status == 403
        assert provider.requests.count("/keys") == 1, "unknown keys do not make the cell ask all the time"
        clock.ahead = 31
        assert sign_in(PageClient(cell), provider).status == 303
        assert provider.requests.count("/keys") == 2
        clock.ahead += 3601
        assert sign_in(PageClient(cell), provider).status == 303
        assert provider.requests.count("/keys") == 3


def test_a_provider_that_fails_is_named(cell: ServedCell, provider: ForgingProvider) -> None:
    provider.silent = True
    answer = PageClient(cell).get("/-/sign-in/oidc")
    assert answer.status == 503
    assert "cannot be reached now" in answer.body.decode()
    provider.silent, provider.status = False, 500
    assert PageClient(cell).get("/-/sign-in/oidc").status == 503
    provider.status = 200
    provider.configuration = {"issuer": "https://evil.example"}
    assert (
        "is that of https://evil.example; correct web.oidc.issuer"
        in PageClient(cell).get("/-/sign-in/oidc").body.decode()
    )
    provider.configuration = {"authorization_endpoint": "javascript:alert(1)"}
    assert "an address without HTTPS" in PageClient(cell).get("/-/sign-in/oidc").body.decode()
    provider.configuration = {}
    client = PageClient(cell)
    callback = provider.authorize(begin(client))
    provider.silent = True
    assert client.get(callback).status == 503


def test_a_wrong_secret_is_reported_to_the_administrator(tmp_path: Path, provider: ForgingProvider) -> None:
    with make_cell(tmp_path, provider.url, client_secret="wrong") as cell:
        answer = sign_in(PageClient(cell), provider)
        assert answer.status == 503
        assert "correct web.oidc.client_id and web.oidc.client_secret" in answer.body.decode()


def test_a_blocked_or_removed_user_is_signed_out(cell: ServedCell, provider: ForgingProvider) -> None:
    client = PageClient(cell)
    sign_in(client, provider)
    user_id = client.get("/api/v4/user").json()["id"]
    assert cell.api("POST", f"/users/{user_id}/block").status == 201
    assert client.get("/api/v4/user").status == 401
    answer = sign_in(client, provider)
    assert answer.status == 403
    assert "has been blocked" in answer.body.decode()
    assert cell.api("POST", f"/users/{user_id}/unblock").status == 201
    assert not client.is_signed_in, "blocking ended the session for good"
    assert sign_in(client, provider).status == 303
    assert cell.api("DELETE", f"/users/{user_id}?hard_delete=true").status == 204
    assert client.get("/api/v4/user").status == 401
    assert sign_in(client, provider).status == 303
    assert client.get("/api/v4/user").json()["id"] != user_id


def test_without_a_provider_there_is_no_such_sign_in(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "plain") as cell:
        assert "sign-in/oidc" not in PageClient(cell).get("/-/sign-in").body.decode()
        assert PageClient(cell).get("/-/sign-in/oidc").status == 404
        assert PageClient(cell).get("/-/sign-in/oidc/callback?code=x&state=y").status == 404


def test_members_given_by_hand_stay(cell: ServedCell, provider: ForgingProvider) -> None:
    ada = PageClient(cell)
    sign_in(ada, provider)
    bob = create_person(cell, "bob")
    group = create_group(cell, "acme")
    add_member(cell, f"groups/{group}", bob, 40)
    sign_in(PageClient(cell), provider)
    assert "bob" in [member["username"] for member in cell.api("GET", f"/groups/{group}/members").json()]
