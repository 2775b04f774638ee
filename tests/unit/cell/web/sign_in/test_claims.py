from typing import Any

import pytest

from remuda.cell.web.sign_in.claims import find_claim, list_needed_claims, read_profile
from remuda.cell.web.sign_in.errors import SignInError
from remuda.cell.web_settings import OidcSettings


def some_settings(**more: Any) -> OidcSettings:
    return OidcSettings(issuer="https://login.example", client_id="cell", **more)


def test_claims_give_name_and_mail_address() -> None:
    claims = {"sub": "1", "preferred_username": "ada", "name": " Ada L. ", "email": "ada@example.org"}
    profile = read_profile(some_settings(), claims)
    assert (profile.username, profile.name, profile.email, profile.is_admin) == (
        "ada",
        "Ada L.",
        "ada@example.org",
        None,
    )
    assert read_profile(some_settings(), {"sub": "1", "preferred_username": "ada"}).name == "ada"


@pytest.mark.parametrize(
    ("claim", "username"),
    [
        ("ada", "ada"),
        ("ada@corp.example", "ada"),
        ("a/b", ""),
        ("admin", ""),
        ("-x", ""),
        ("<script>", ""),
        ("x.git", ""),
        ("", ""),
        (7, ""),
        (None, ""),
        (["ada"], ""),
        ("x" * 300, ""),
    ],
)
def test_only_a_valid_name_becomes_a_user_name(claim: Any, username: str) -> None:
    assert read_profile(some_settings(), {"sub": "1", "preferred_username": claim}).username == username


def test_only_members_of_allowed_groups_may_sign_in() -> None:
    settings = some_settings(allowed_groups=("ci", "ops"))
    allowed: list[Any] = [["x", "ops"], "ci"]
    for groups in allowed:
        read_profile(settings, {"sub": "1", "groups": groups})
    refused: list[Any] = [[], ["x"], "opsx", [["ci"]]]
    for groups in refused:
        with pytest.raises(SignInError, match="may not sign in here"):
            read_profile(settings, {"sub": "1", "groups": groups})
    with pytest.raises(SignInError, match=r"sent no list of groups \(claim groups\)"):
        read_profile(settings, {"sub": "1"})


def test_groups_make_administrators_and_members() -> None:
    settings = some_settings(
        groups_claim="realm_access.roles",
        admin_groups=("root",),
        members=("devs=acme:developer", "leads=acme:owner", "devs=tools:guest", "leads=other:guest", "qa=acme"),
        level_claim="level",
    )
    claims = {"sub": "1", "realm_access": {"roles": ["devs", "leads"]}}
    profile = read_profile(settings, claims)
    assert profile.is_admin is False
    assert profile.levels == {"acme": 50, "tools": 10, "other": 10}
    profile = read_profile(settings, {"sub": "1", "realm_access": {"roles": ["root", "qa"]}, "level": "Maintainer"})
    assert profile.is_admin is True
    assert profile.levels == {"acme": 40, "tools": None, "other": None}
    profile = read_profile(settings, {"sub": "1", "realm_access": {"roles": ["qa"]}, "level": "boss"})
    assert profile.levels == {"acme": None, "tools": None, "other": None}
    assert list_needed_claims(settings) == ["preferred_username", "realm_access.roles", "level"]


def test_a_claim_with_dots_in_its_name_goes_first() -> None:
    assert find_claim({"https://x.example/groups": 1}, "https://x.example/groups") == 1
    assert find_claim({"a": {"b": 2}}, "a.b") == 2
    assert find_claim({"a": [1]}, "a.b.c") is None
