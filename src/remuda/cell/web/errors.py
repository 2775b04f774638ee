"""Pages for errors: what happened, and what to do."""

from starlette.responses import Response

from remuda.cell.http.edge.errors import ApiError
from remuda.cell.web.visit import Visit

_ADVICE = {
    403: "Ask a maintainer of the project or an administrator for access, or sign in as another user.",
    404: "It does not exist, was deleted, or you may not see it. Check the address, or sign in as another user.",
    503: "A part of the cell does not answer now. Reload the page in a few seconds.",
}


def show_error(visit: Visit, error: ApiError) -> Response:
    """The page for an error: what happened, and what to do."""
    if error.status == 401:
        return visit.ask_to_sign_in()
    reason = describe_error(error)
    status = error.status
    answer = visit.render("error.html", status=status, code=status, reason=reason, advice=_ADVICE.get(status, ""))
    if "Retry-After" in error.headers:
        answer.headers["Retry-After"] = error.headers["Retry-After"]
    return answer


def describe_error(error: ApiError) -> str:
    """The message of an error of the API as a text: without the status; several fields are joined."""
    body = error.body
    message = body.get("message", body.get("error", "")) if isinstance(body, dict) else body
    if isinstance(message, dict):
        texts = {field: texts if isinstance(texts, list) else [texts] for field, texts in message.items()}
        return "; ".join(f"{field}: {' '.join(map(str, words))}" for field, words in texts.items())
    head, _, rest = str(message).partition(" ")
    return rest.removeprefix("Forbidden - ").removeprefix("Bad request - ") if head.isdigit() else str(message)
