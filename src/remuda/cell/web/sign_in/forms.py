"""The sign-in form, links that sign in once, and signing out."""

from urllib.parse import parse_qsl, urlsplit

from starlette.responses import Response

from remuda.cell.http.edge import auth, sessions
from remuda.cell.http.edge.admission import person
from remuda.cell.http.edge.bodies import Body
from remuda.cell.http.edge.errors import ApiError, forbidden
from remuda.cell.http.remuda.web_sessions import LINK_PATH
from remuda.cell.web.errors import describe_error
from remuda.cell.web.sign_in.begin import begin_session, check_scopes, set_cookie
from remuda.cell.web.visit import SIGN_IN, Pages, Visit
from remuda.wire.routable_token import token_hash

_FORM_LIMIT_BYTES = 64 * 1024
_NO_TOKEN = (
    "There is no such token, or it was revoked or has expired. `remuda login` and an administrator can create one."
)
pages = Pages()


@pages.get(SIGN_IN, open_to_all=True)
async def show_form(visit: Visit) -> Response:
    if visit.is_signed_in:
        return visit.redirect(own_address(visit.query("return_to")))
    return _form(visit, own_address(visit.query("return_to")))


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
        return _form(visit, return_to, problem=_NO_TOKEN if error.status == 401 else describe_error(error), status=422)
    secret = await begin_session(visit, user_id=caller.user.id, user_token_id=caller.token.id, method="token")
    answer = visit.redirect(return_to)
    set_cookie(visit.edge, answer, secret)
    return answer


@pages.get(LINK_PATH, open_to_all=True)
async def use_link(visit: Visit) -> Response:
    """Sign in with a link that works once. A browser that is signed in keeps its session and the link stays valid."""
    if visit.is_signed_in:
        return visit.redirect("/")
    code = visit.query("code")
    link = await visit.edge.store.sessions.take_link(token_hash(code)) if 0 < len(code) <= auth.MAX_TOKEN else None
    if link is None or link.expires_at <= visit.edge.clock.wall():
        problem = "This link has been used, or has expired. Sign in with a token, or create another link."
        return _form(visit, "/", problem=problem, status=422)
    secret = await begin_session(visit, user_id=link.user_id, user_token_id=link.user_token_id, method="link")
    answer = visit.redirect("/")
    set_cookie(visit.edge, answer, secret)
    return answer


@pages.post("/-/sign-out", open_to_all=True)
async def sign_out(visit: Visit) -> Response:
    _check_origin(visit)
    secret = sessions.session_secret_in(visit.edge, visit.request.headers)
    if secret is not None:
        session = await visit.edge.store.sessions.find_session(token_hash(secret))
        if session is not None:
            await visit.edge.store.sessions.remove_session(session.id)
    answer = visit.redirect(SIGN_IN)
    set_cookie(visit.edge, answer, "")
    return answer


def _form(visit: Visit, return_to: str, *, problem: str = "", status: int = 200) -> Response:
    return visit.render("sign_in.html", return_to=return_to, problem=problem, status=status)


def own_address(address: str) -> str:
    """`address` if it is a path of this cell, else `/`, so that nobody can use the form to redirect elsewhere."""
    parts = urlsplit(address)
    is_own = address.startswith("/") and not address.startswith(("//", "/\\")) and not parts.netloc
    return address if is_own and address.isprintable() and "\\" not in address else "/"


def _check_origin(visit: Visit) -> None:
    """Raise ApiError 403 if another site has sent this form (browsers say so in Sec-Fetch-Site or Origin)."""
    headers = visit.request.headers
    origin = headers.get("origin", "")
    is_foreign = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
    if is_foreign or (origin not in ("", "null") and urlsplit(origin).netloc != headers.get("host", "")):
        raise forbidden("this form was sent by another site; open the cell's own page")
