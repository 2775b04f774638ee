"""Stored values of sessions in a browser, of links that sign in once, and of the users of an OpenID Connect
provider. Secrets are stored as their SHA-256 only."""

from remuda.cell.values.stored import Value


class WebSession(Value, frozen=True, kw_only=True):
    """A browser in which a user is signed in."""

    token_hash: str
    """SHA-256 of the secret in the browser's cookie."""
    id: int = 0
    user_id: int
    method: str
    """How the user signed in: `token`, `link` or `oidc`."""
    user_token_id: int = 0
    """The personal token that the user signed in with: the session ends with it and has its scopes. 0: none."""
    created_at: float
    expires_at: float
    last_used_at: float
    address: str = ""
    """IP address of the browser when it signed in."""
    browser: str = ""
    """User-Agent of the browser when it signed in."""


class SignInLink(Value, frozen=True, kw_only=True):
    """A link that signs in a user once."""

    code_hash: str
    id: int = 0
    user_id: int
    user_token_id: int
    """The personal token with which the link was created."""
    created_at: float
    expires_at: float


class Identity(Value, frozen=True, kw_only=True):
    """A user of an OpenID Connect provider, and the user of the cell that this is."""

    id: int = 0
    issuer: str
    subject: str
    """The claim `sub`: the provider's id of the user, which never changes."""
    user_id: int
    created_at: float

    @property
    def name(self) -> str:
        """Issuer and subject in one text, unique among all identities. An issuer has no spaces."""
        return f"{self.issuer} {self.subject}"
