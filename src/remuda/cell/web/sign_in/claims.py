"""Reads from the claims of a provider who somebody is and what they may do, by the settings `[web.oidc]`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.cell.errors import InvalidError
from remuda.cell.projects.paths import check_path
from remuda.cell.values.people import Level
from remuda.cell.web.sign_in.errors import SignInError
from remuda.cell.web_settings import LEVELS, OidcSettings

_MAX_NAME = 255


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider says about somebody."""

    subject: str
    username: str
    """Empty if the claims have none that can be a user name."""
    name: str
    email: str
    is_admin: bool | None
    """None: the provider does not decide who is an administrator."""
    levels: Mapping[str, int | None]
    """For each path of a group in `members`: the level of a membership; None: no membership."""


def read_profile(settings: OidcSettings, claims: Mapping[str, Any]) -> Profile:
    """Read the claims of somebody who signs in. Raises SignInError if they may not sign in, or a claim is missing."""
    groups = _read_groups(settings, claims)
    if settings.allowed_groups and groups.isdisjoint(settings.allowed_groups):
        raise SignInError(
            f"You may not sign in here: {settings.name} does not list you in one of the groups that may. Ask an "
            "administrator of this cell to add you to a group.",
            reason="not in an allowed group",
        )
    username = _read_username(find_claim(claims, settings.username_claim))
    name, email = find_claim(claims, "name"), find_claim(claims, "email")
    return Profile(
        subject=claims["sub"],
        username=username,
        name=name.strip()[:_MAX_NAME] if isinstance(name, str) and name.strip() else username,
        email=email if isinstance(email, str) and len(email) <= _MAX_NAME else "",
        is_admin=not groups.isdisjoint(settings.admin_groups) if settings.admin_groups else None,
        levels=_read_levels(settings, claims, groups),
    )


def find_claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return the claim with this name, or the one to which dots in the name lead; None if there is none. A claim whose
    own name has dots goes first."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def list_needed_claims(settings: OidcSettings) -> list[str]:
    """Names of the claims without which sign-in cannot decide: if the ID token lacks one, userinfo may have it."""
    needs_groups = settings.allowed_groups or settings.admin_groups or settings.members
    return list(
        filter(None, (settings.username_claim, settings.groups_claim if needs_groups else "", settings.level_claim))
    )


def _read_groups(settings: OidcSettings, claims: Mapping[str, Any]) -> set[str]:
    value = find_claim(claims, settings.groups_claim)
    if isinstance(value, str):
        return {value}
    if isinstance(value, list):
        return {entry for entry in value if isinstance(entry, str)}
    if settings.allowed_groups:
        raise SignInError(
            f"{settings.name} sent no list of groups (claim {settings.groups_claim}). An administrator must let the "
            "provider send it, or correct web.oidc.groups_claim and web.oidc.scopes.",
            reason=f"claim {settings.groups_claim} is missing",
        )
    return set()


def _read_username(value: Any) -> str:
    """The user name in a claim; empty if it cannot be one here."""
    text = value.partition("@")[0] if isinstance(value, str) else ""
    try:
        return "" if "/" in text else check_path(text, least_parts=1)
    except InvalidError:
        return ""


def _read_levels(settings: OidcSettings, claims: Mapping[str, Any], groups: set[str]) -> dict[str, int | None]:
    claimed_level = find_claim(claims, settings.level_claim) if settings.level_claim else None
    levels: dict[str, int | None] = {}
    for membership in settings.memberships():
        level = membership.level or (str(claimed_level).lower() if isinstance(claimed_level, str) else "")
        present = levels.setdefault(membership.path, None)
        if membership.claimed in groups and level in LEVELS:
            levels[membership.path] = max(present or 0, Level[level.upper()])
    return levels
