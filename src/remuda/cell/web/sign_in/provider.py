"""Calls an OpenID Connect provider: its configuration, its keys, and the exchange of a code for an ID token.

Configuration and keys are cached. A token with an unknown key id makes the cell fetch the keys again, so that a
provider may change its keys, but at most once in REFETCH_SECONDS, so that forged tokens cause no traffic."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from remuda.cell.web.sign_in.errors import SignInError
from remuda.cell.web.sign_in.id_token import check_id_token, find_keys, read_header, refuse
from remuda.cell.web_settings import OidcSettings
from remuda.lib.clock import Clock
from remuda.telemetry.logs import logger

if TYPE_CHECKING:
    import aiohttp

CACHED_SECONDS = 3600
REFETCH_SECONDS = 30
DEADLINE_SECONDS = 10
MAX_ANSWER_BYTES = 1024 * 1024
T = TypeVar("T")
_log = logger("cell")


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a provider's configuration that a sign-in needs."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class Keys(msgspec.Struct, frozen=True):
    keys: tuple[dict[str, Any], ...] = ()


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    id_token: str
    access_token: str = ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in that waits for the provider's answer. The browser keeps it in a cookie."""

    state: str
    nonce: str
    verifier: str
    """Secret of PKCE: only who has it can exchange the code."""
    return_to: str
    expires_at: float


class Provider:
    """The provider of `settings`. `callback`: the address of the cell to which the provider sends browsers back."""

    def __init__(self, settings: OidcSettings, callback: str, clock: Clock) -> None:
        self.settings = settings
        self._callback = callback
        self._clock = clock
        self._configuration: Configuration | None = None
        self._configured_at = 0.0
        self._keys: Sequence[Mapping[str, Any]] = ()
        self._fetched_at: float | None = None

    async def authorization_url(self, attempt: Attempt) -> str:
        """The address at the provider to which the browser is sent. Raises SignInError if it cannot be reached."""
        configuration = await self._configure()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self.settings.client_id,
                "redirect_uri": self._callback,
                "scope": " ".join(dict.fromkeys(("openid", *self.settings.scopes))),
                "state": attempt.state,
                "nonce": attempt.nonce,
                "code_challenge": challenge,
                "code_challenge_method": "S256",
            }
        )
        address = configuration.authorization_endpoint
        return f"{address}{'&' if urlsplit(address).query else '?'}{query}"

    async def check_answer_issuer(self, issuer: str) -> None:
        """Raise SignInError if the provider's answer names another issuer, or none although it always does."""
        configuration = await self._configure()
        is_required = configuration.authorization_response_iss_parameter_supported
        if (issuer or is_required) and issuer != self.settings.issuer:
            raise refuse("it is from another issuer")

    async def fetch_claims(self, code: str, attempt: Attempt, needed: Sequence[str]) -> dict[str, Any]:
        """Exchange a code for the claims about its user. If the ID token lacks one of the `needed` claims, those of the
        userinfo endpoint are added. Raises SignInError."""
        configuration = await self._configure()
        tokens = await self._exchange(configuration, code, attempt)
        keys = await self._keys_for(tokens.id_token, configuration)
        claims = check_id_token(
            tokens.id_token,
            keys,
            issuer=self.settings.issuer,
            client_id=self.settings.client_id,
            nonce=attempt.nonce,
            now=self._clock.wall(),
        )
        names = {name.partition(".")[0] for name in (*needed, "name", "email")}
        if configuration.userinfo_endpoint and tokens.access_token and not names <= claims.keys():
            claims = await self._fetch_userinfo(configuration, tokens.access_token, claims) | claims
        return claims

    async def _configure(self) -> Configuration:
        now = self._clock.monotonic()
        if self._configuration is None or now - self._configured_at >= CACHED_SECONDS:
            address = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
            configuration = await self._request("GET", address, Configuration)
            if configuration.issuer != self.settings.issuer:
                raise self._settings_error(
                    f"its configuration is that of {configuration.issuer[:200]}; correct web.oidc.issuer"
                )
            self._check_address(configuration.authorization_endpoint)
            self._configuration, self._configured_at = configuration, now
        return self._configuration

    async def _keys_for(self, token: str, configuration: Configuration) -> Sequence[Mapping[str, Any]]:
        """The provider's keys, fetched again if they are old or none of them can have signed this token."""
        algorithm, kid = read_header(token)
        now = self._clock.monotonic()
        age = float("inf") if self._fetched_at is None else now - self._fetched_at
        is_unknown = not find_keys(self._keys, algorithm, kid)
        if age >= CACHED_SECONDS or (is_unknown and age >= REFETCH_SECONDS):
            self._keys = (await self._request("GET", configuration.jwks_uri, Keys)).keys
            self._fetched_at = now
        return self._keys

    async def _exchange(self, configuration: Configuration, code: str, attempt: Attempt) -> Tokens:
        settings = self.settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._callback,
            "code_verifier": attempt.verifier,
        }
        headers = {}
        if settings.client_secret and "client_secret_basic" in configuration.token_endpoint_auth_methods_supported:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": settings.client_id}
            form |= {"client_secret": settings.client_secret} if settings.client_secret else {}
        return await self._request("POST", configuration.token_endpoint, Tokens, headers=headers, form=form)

    async def _fetch_userinfo(
        self, configuration: Configuration, access_token: str, claims: Mapping[str, Any]
    ) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {access_token}"}
        info = await self._request("GET", configuration.userinfo_endpoint, dict[str, Any], headers=headers)
        if info.get("sub") != claims["sub"]:
            raise refuse("its userinfo is about another user")
        return info

    async def _request(
        self,
        method: str,
        address: str,
        kind: type[T],
        *,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> T:
        """Send a request to the provider and return its JSON as `kind`. Raises SignInError if it does not answer, or
        not with 200 and valid JSON. Redirects are not followed."""
        import aiohttp  # imported here: few cells have a provider

        self._check_address(address)
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE_SECONDS)) as client,
                client.request(
                    method,
                    address,
                    headers={"Accept": "application/json", **(headers or {})},
                    data=form,
                    allow_redirects=False,
                ) as answer,
            ):
                body = await _read(answer.content)
                status = answer.status
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._unreachable(address, str(error) or type(error).__name__) from error
        if status != 200:
            raise self._refusal(address, status, body)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._settings_error(f"the answer of {_host(address)} is not as expected ({error})") from error

    def _check_address(self, address: str) -> None:
        """Raise SignInError if an address from the configuration is less safe than that of the issuer."""
        scheme = urlsplit(address).scheme
        if scheme != "https" and scheme != urlsplit(self.settings.issuer).scheme:
            raise self._settings_error(f"it names an address without HTTPS: {address[:200]}")

    def _unreachable(self, address: str, reason: str) -> SignInError:
        _log.warning("OpenID Connect provider cannot be reached", address=address, error=reason)
        return SignInError(
            f"{self.settings.name} cannot be reached now. Try again in a minute, or sign in with a token.",
            reason=f"{_host(address)} cannot be reached",
            status=503,
        )

    def _refusal(self, address: str, status: int, body: bytes) -> SignInError:
        """The error for an answer with another status than 200. A refused code is the user's affair, a refused client
        that of an administrator."""
        try:
            error = str(msgspec.json.decode(body)["error"])[:100]
        except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
            error = ""
        _log.warning("OpenID Connect provider refused a request", address=address, status=status, error=error)
        if error == "invalid_grant":
            return refuse("the code was used already or has expired")
        if error in ("invalid_client", "unauthorized_client"):
            return self._settings_error("it refuses the client; correct web.oidc.client_id and web.oidc.client_secret")
        return self._unreachable(address, f"answered {status} {error}".strip())

    def _settings_error(self, reason: str) -> SignInError:
        _log.error("sign-in with the OpenID Connect provider is misconfigured", reason=reason)
        return SignInError(
            f"Sign-in with {self.settings.name} does not work: {reason}. Tell an administrator of this cell.",
            reason=reason,
            status=503,
        )


async def _read(content: "aiohttp.StreamReader") -> bytes:
    """Read an answer. Raises ValueError if it is longer than MAX_ANSWER_BYTES."""
    body = bytearray()
    async for piece in content.iter_chunked(64 * 1024):
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise ValueError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _host(address: str) -> str:
    return urlsplit(address).netloc[:200]
