"""The settings of the web pages: the tables `[web]` and `[web.oidc]` of `cell.toml`, or REMUDA_WEB_ENABLED,
REMUDA_WEB_OIDC_ISSUER and so on. `remuda.cell.settings` has those of the rest of the cell."""

from urllib.parse import urlsplit

import msgspec

from remuda.cell.errors import CellError

LEVELS = ("guest", "planner", "reporter", "developer", "maintainer", "owner")
"""The names of access levels in `web.oidc.members` and in the claim `web.oidc.level_claim`."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class GroupMembership(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of `web.oidc.members`: who is in `claimed` at the provider is a member of the group `path` here."""

    claimed: str
    path: str
    level: str
    """One of LEVELS; empty: the level of `level_claim`."""


class OidcSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sign-in with an OpenID Connect provider. Creating one raises CellError for invalid values."""

    issuer: str = ""
    """The address of an OpenID Connect provider, exactly as in its ID tokens: people sign in to the pages with it.
    Register the address of the cell followed by `/-/sign-in/oidc/callback` with the provider. Empty: no such
    sign-in."""
    client_id: str = ""
    """The id of the cell at the provider."""
    client_secret: str = ""
    """The secret of the cell at the provider; empty for a public client, which PKCE protects."""
    label: str = ""
    """The name of the provider on the sign-in form; empty: its host name."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    """The scopes that the cell asks for; `openid` is always one. Many providers have one for groups."""
    username_claim: str = "preferred_username"
    """The claim with the user name, for a user who signs in for the first time; of a mail address, the part before the
    @ counts."""
    groups_claim: str = "groups"
    """The claim with the names of the user's groups: a list, or one name. A dot leads into an object, as in
    `realm_access.roles`."""
    allowed_groups: tuple[str, ...] = ()
    """Only users in one of these groups of the provider may sign in; none: all users of the provider."""
    admin_groups: tuple[str, ...] = ()
    """Users in one of these groups of the provider are administrators, and others who sign in with the provider are
    not. Without a value, sign-in changes no administrator."""
    members: tuple[str, ...] = ()
    """Which groups of the cell users are members of: `developers=acme/tools:maintainer` gives users in the group
    `developers` of the provider the level maintainer in the group acme/tools. Without a level, that of `level_claim`
    counts. At each sign-in, memberships in the groups that are named here are added, changed and removed."""
    level_claim: str = ""
    """The claim with the level (guest, planner, reporter, developer, maintainer, owner) for entries of `members` that
    name none."""
    create_users: bool = True
    """Create a user for somebody who signs in for the first time. Without it, an administrator creates users, and
    `link_users` must be on."""
    link_users: bool = False
    """Somebody who signs in for the first time becomes the user who exists with that user name. Only for a provider
    that lets nobody choose a user name."""

    def __post_init__(self) -> None:
        if not self.issuer:
            if self.client_id or self.client_secret:
                raise CellError("web.oidc: has a client, but no provider; set web.oidc.issuer, too")
            return
        parts = urlsplit(self.issuer)
        is_secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
        if not is_secure or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
            raise CellError(
                f"web.oidc.issuer {self.issuer!r}: must be an address such as https://login.example, without a query"
            )
        if not self.client_id:
            raise CellError("web.oidc.client_id: is missing; the provider gives one to each registered client")
        if not (self.create_users or self.link_users):
            raise CellError("web.oidc: nobody could sign in; set create_users or link_users to true")
        self.memberships()

    @property
    def is_enabled(self) -> bool:
        return bool(self.issuer)

    @property
    def name(self) -> str:
        """The name of the provider for people."""
        return self.label or urlsplit(self.issuer).netloc

    def memberships(self) -> tuple[GroupMembership, ...]:
        """The entries of `members`. Raises CellError if one is not valid."""
        return tuple(self._read_membership(entry) for entry in self.members)

    def _read_membership(self, entry: str) -> GroupMembership:
        claimed, _, place = entry.rpartition("=")
        path, _, level = place.partition(":")
        if not claimed or not path:
            raise CellError(f"web.oidc.members {entry!r}: must have the form GROUP=PATH:LEVEL, as devs=acme:developer")
        if level and level not in LEVELS:
            raise CellError(f"web.oidc.members {entry!r}: the level must be one of {', '.join(LEVELS)}")
        if not level and not self.level_claim:
            raise CellError(f"web.oidc.members {entry!r}: has no level; add one, or set web.oidc.level_claim")
        return GroupMembership(claimed=claimed, path=path, level=level)


class WebSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the web pages."""

    enabled: bool = True
    """Serve web pages. Without them, the addresses of pages redirect to the API."""
    session_seconds: float = 14 * 24 * 3600
    """How long a browser stays signed in. A session also ends with the token with which it began."""
    public_projects: bool = False
    """Show the pages of public projects to people who are not signed in: code, pipelines, logs and artifacts. They see
    no variables, members, steps, tokens or settings, of runners only those that had a job, and can change nothing."""
    oidc: OidcSettings = OidcSettings()
    """Sign-in with an OpenID Connect provider."""
