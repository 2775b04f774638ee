"""The two addresses of sign-in with an OpenID Connect provider: one sends the browser to the provider, the other takes
its answer. Between them the browser keeps state, nonce and the secret of PKCE in a cookie, which works for one answer,
so that any process of the cell can take it."""

import base64
import binascii
import secrets

import msgspec
from starlette.responses import Response

from remuda.cell.http.edge.auth import MAX_TOKEN
from remuda.cell.http.edge.errors import not_found
from remuda.cell.web.sign_in import auditing
from remuda.cell.web.sign_in.begin import begin_session, put_cookie, set_cookie
from remuda.cell.web.sign_in.claims import list_needed_claims, read_profile
from remuda.cell.web.sign_in.errors import SignInError
from remuda.cell.web.sign_in.id_token import refuse
from remuda.cell.web.sign_in.memory import CALLBACK
from remuda.cell.web.sign_in.places import own_address, show_form
from remuda.cell.web.sign_in.provider import Attempt, Provider
from remuda.cell.web.sign_in.users import find_or_create_user
from remuda.cell.web.visit import Pages, Visit

ATTEMPT_SECONDS = 600
"""How long a person may take at the provider."""
_SECRET_BYTES = 32
_MAX_ADDRESS = 2000
_MAX_ERROR = 100
pages = Pages()


@pages.get("/-/sign-in/oidc", open_to_all=True)
async def send_to_provider(visit: Visit) -> Response:
    provider = _provider(visit)
    return_to = own_address(visit.query("return_to"))
    if visit.is_signed_in:
        return visit.redirect(return_to)
    attempt = Attempt(
        state=secrets.token_urlsafe(_SECRET_BYTES),
        nonce=secrets.token_urlsafe(_SECRET_BYTES),
        verifier=secrets.token_urlsafe(_SECRET_BYTES),
        return_to=return_to if len(return_to) <= _MAX_ADDRESS else "/",
        expires_at=visit.edge.clock.wall() + ATTEMPT_SECONDS,
    )
    try:
        answer = visit.redirect(await provider.authorization_url(attempt))
    except SignInError as error:
        return show_form(visit, return_to, problem=str(error), status=error.status)
    put_cookie(visit.edge, answer, _cookie(visit), _encode(attempt), ATTEMPT_SECONDS)
    return answer


@pages.get(CALLBACK, open_to_all=True)
async def take_answer(visit: Visit) -> Response:
    provider = _provider(visit)
    attempt = _read_attempt(visit)
    try:
        answer = await _sign_in(visit, provider, attempt)
    except SignInError as error:
        await auditing.record_refusal(visit, "oidc", error.reason)
        answer = show_form(visit, attempt.return_to if attempt else "/", problem=str(error), status=error.status)
    put_cookie(visit.edge, answer, _cookie(visit), "", 0)
    return answer


async def _sign_in(visit: Visit, provider: Provider, attempt: Attempt | None) -> Response:
    """Sign in the user of the provider's answer. Raises SignInError if the answer does not belong to the attempt of
    this browser, or its user may not sign in."""
    state = visit.query("state")
    if attempt is None or attempt.expires_at <= visit.edge.clock.wall() or not _is_same(state, attempt.state):
        raise SignInError(
            "This answer of the provider belongs to no sign-in of this browser, was used already, or took longer than "
            "ten minutes. Sign in again.",
            reason="unknown state",
        )
    await provider.check_answer_issuer(visit.query("iss"))
    if error := visit.query("error"):
        raise SignInError(
            f"{provider.settings.name} has not signed you in: {error[:_MAX_ERROR]} "
            f"{visit.query('error_description')[:_MAX_ERROR]}".rstrip()
            + ". Sign in again, or as another user.",
            reason=f"the provider answered {error[:_MAX_ERROR]}",
        )
    code = visit.query("code")
    if not 0 < len(code) <= MAX_TOKEN:
        raise refuse("it has no code")
    settings = provider.settings
    claims = await provider.fetch_claims(code, attempt, list_needed_claims(settings))
    profile = read_profile(settings, claims)
    user = await find_or_create_user(visit.edge.store, settings, profile, visit.edge.clock.wall())
    secret = await begin_session(visit, user, method="oidc")
    answer = visit.redirect(attempt.return_to)
    set_cookie(visit.edge, answer, secret)
    return answer


def _provider(visit: Visit) -> Provider:
    provider = visit.sign_in.provider
    if provider is None:
        raise not_found("Sign-in with OpenID Connect")
    return provider


def _cookie(visit: Visit) -> str:
    return "__Host-remuda_oidc" if visit.edge.settings.url.startswith("https:") else "remuda_oidc"


def _encode(attempt: Attempt) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(attempt)).decode().rstrip("=")


def _read_attempt(visit: Visit) -> Attempt | None:
    """The attempt in the cookie of the browser; None if there is none or it is not valid."""
    text = visit.request.cookies.get(_cookie(visit), "")
    try:
        attempt = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Attempt)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        return None
    return msgspec.structs.replace(attempt, return_to=own_address(attempt.return_to))


def _is_same(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode(), expected.encode())
