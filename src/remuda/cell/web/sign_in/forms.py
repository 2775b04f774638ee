"""The sign-in form, links that sign in once, and signing out."""

from urllib.parse import parse_qsl

from starlette.responses import Response

from remuda.cell.http.edge import auth, sessions
from remuda.cell.http.edge.admission import person
from remuda.cell.http.edge.bodies import Body
from remuda.cell.http.edge.errors import ApiError, forbidden
from remuda.cell.http.remuda.web_sessions import LINK_PATH
from remuda.cell.values.people import User
from remuda.cell.values.sessions import SignInLink
from remuda.cell.web.errors import describe_error
from remuda.cell.web.sign_in import auditing
from remuda.cell.web.sign_in.begin import begin_session, check_scopes, set_cookie
from remuda.cell.web.sign_in.places import own_address, show_form
from remuda.cell.web.visit import SIGN_IN, Pages, Visit
from remuda.wire.routable_token import token_hash

_FORM_LIMIT_BYTES = 64 * 1024
_NO_TOKEN = (
    "There is no such token, or it was revoked or has expired. `remuda login` and an administrator can create one."
)
pages = Pages()


@pages.get(SIGN_IN, open_to_all=True)
async def sign_in_form(visit: Visit) -> Response:
    if visit.is_signed_in:
        return visit.redirect(own_address(visit.query("return_to")))
    return show_form(visit, own_address(visit.query("return_to")))


@pages.post(SIGN_IN, open_to_all=True)
async def sign_in(visit: Visit) -> Response:
    _check_origin(visit)
    fields = dict(parse_qsl((await Body(visit.request.receive).read(_FORM_LIMIT_BYTES)).decode(errors="replace")))
    token, return_to = fields.get("token", "").strip(), own_address(fields.get("return_to", ""))
    try:
        caller = await person(visit.edge, token)
        check_scopes(caller.token)
    except ApiError as error:
        if error.status not in (401, 403):
            raise
        is_unknown, reason = error.status == 401, describe_error(error)
        await auditing.record_refusal(visit, "token", "unknown token" if is_unknown else reason)
        return show_form(visit, return_to, problem=_NO_TOKEN if is_unknown else reason, status=422)
    secret = await begin_session(visit, caller.user, method="token", user_token_id=caller.token.id)
    answer = visit.redirect(return_to)
    set_cookie(visit.edge, answer, secret)
    return answer


@pages.get(LINK_PATH, open_to_all=True)
async def use_link(visit: Visit) -> Response:
    """Sign in with a link that works once. A browser that is signed in keeps its session and the link stays valid."""
    if visit.is_signed_in:
        return visit.redirect("/")
    if sessions.is_of_other_site(visit.edge, visit.request.headers):
        # Otherwise another site could sign people in as somebody else, who then sees what they store.
        problem = "Another site has opened this link. If you made it, copy it into the address bar; it is still valid."
        return show_form(visit, "/", problem=problem, status=422)
    user, link = await _take_link(visit)
    if user is None or link is None:
        await auditing.record_refusal(visit, "link", "the link was used or has expired")
        problem = "This link has been used, or has expired. Sign in with a token, or create another link."
        return show_form(visit, "/", problem=problem, status=422)
    secret = await begin_session(visit, user, method="link", user_token_id=link.user_token_id)
    answer = visit.redirect("/")
    set_cookie(visit.edge, answer, secret)
    return answer


async def _take_link(visit: Visit) -> tuple[User | None, SignInLink | None]:
    """The user of the link whose code is in the address, and the link, which is used up; None if it is not valid, or
    the token with which it was created is not valid any more, or its user may not sign in."""
    code = visit.query("code")
    store = visit.edge.store
    link = await store.sessions.take_link(token_hash(code)) if 0 < len(code) <= auth.MAX_TOKEN else None
    now = visit.edge.clock.wall()
    if link is None or link.expires_at <= now:
        return None, None
    token = await store.people.load_user_token(link.user_token_id) if link.user_token_id else None
    user = await store.people.load_user(link.user_id)
    if (link.user_token_id and (token is None or not token.is_valid(now))) or user is None or user.state != "active":
        return None, None
    return user, link


@pages.post("/-/sign-out", open_to_all=True)
async def sign_out(visit: Visit) -> Response:
    _check_origin(visit)
    secret = sessions.session_secret_in(visit.edge, visit.request.headers)
    if secret is not None:
        session = await visit.edge.store.sessions.find_session(token_hash(secret))
        if session is not None and await visit.edge.store.sessions.remove_session(session.id):
            user = await visit.edge.store.people.load_user(session.user_id)
            if user is not None:
                await auditing.record(visit, auditing.SIGNED_OUT, user, session_id=session.id)
    answer = visit.redirect(SIGN_IN)
    set_cookie(visit.edge, answer, "")
    return answer


def _check_origin(visit: Visit) -> None:
    """Raise ApiError 403 if another site has sent this form (browsers say so in Sec-Fetch-Site or Origin)."""
    if sessions.is_of_other_site(visit.edge, visit.request.headers):
        raise forbidden("this form was sent by another site; open the cell's own page")
