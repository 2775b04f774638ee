"""Error responses in GitLab's form. `refusal` maps the cell's errors to them. For a bug of the cell, `app` answers 500
without details and logs the traceback."""

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from remuda.cell.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StoreError,
    TooLargeError,
)
from remuda.cell.git.port import GitError

RETRY_AFTER_SECONDS = StoreError.retry_after_seconds

_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE})


class ClientGoneError(Exception):
    """The client has disconnected or reads nothing any more, so there is nobody to answer."""


class ApiError(Exception):
    """An error response. Handlers raise it and the application sends it."""

    def __init__(self, status: int, body: object, **headers: str) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class JsonBytes(Response):
    """A response with a body of encoded JSON, written at once where possible (`connections.send_whole`). Does not use
    Starlette's slower `init_headers`, because nearly every call of a runner gets such a response."""

    def __init__(self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.body = body
        self.status_code = status
        self.background = None
        self.raw_headers = [
            *((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()),
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/json"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        send_whole = getattr(getattr(send, "__self__", None), "send_whole", None)
        if send_whole is None or not send_whole(self.status_code, self.raw_headers, self.body):
            await super().__call__(scope, receive, send)


def json_answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return JsonBytes(msgspec.json.encode(value), status, headers)


def no_content(headers: dict[str, str] | None = None) -> Response:
    return Response(status_code=204, headers=headers)


def unauthorized() -> ApiError:
    return ApiError(401, {"message": "401 Unauthorized"})


def forbidden(reason: str = "", *, job_status: str | None = None) -> ApiError:
    headers = {"Job_Status": job_status} if job_status else {}
    return ApiError(403, {"message": f"403 Forbidden - {reason}" if reason else "403 Forbidden"}, **headers)


def not_found(what: str) -> ApiError:
    return ApiError(404, {"message": f"404 {what} Not Found"})


def bad_request(reason: str) -> ApiError:
    return ApiError(400, {"message": f"400 Bad request - {reason}"})


def bad_parameter(text: str) -> ApiError:
    """Error 400 for a parameter that is missing or not valid, in GitLab's form `{"error": text}`."""
    return ApiError(400, {"error": text})


def bad_field(field: str, reason: str) -> ApiError:
    """Error 400 for a field whose value cannot be stored, in GitLab's form `{"message": {field: [reason]}}`."""
    return ApiError(400, {"message": {field: [reason]}})


@contextmanager
def blame_field(field: str, *, taken: str = "") -> Iterator[None]:
    """Context manager that turns an InvalidError or ConflictError of the block into ApiError 400 about `field`. The
    message is that of the error; if `taken` is not empty, it replaces the message of a ConflictError."""
    try:
        yield
    except InvalidError as error:
        raise bad_field(field, str(error)) from None
    except ConflictError as error:
        raise bad_field(field, taken or str(error)) from None


def too_large(reason: str) -> ApiError:
    return ApiError(413, {"message": f"413 Request Entity Too Large - {reason}"})


def too_slow(reason: str) -> ApiError:
    """Error 408 for a slow client. It closes the connection, because the rest of the request is not read."""
    return ApiError(408, {"message": f"408 Request Timeout - {reason}"}, Connection="close")


def unavailable(reason: str) -> ApiError:
    message = f"503 Service Unavailable - {reason}"
    return ApiError(503, {"message": message}, Retry_After=str(RETRY_AFTER_SECONDS))


def unwrap(error: Exception) -> Exception:
    """Return the only error in an exception group, even nested; other errors and groups of several unchanged."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def refusal(error: Exception) -> ApiError | None:
    """The error response for an exception; None for bugs of the cell, and for exceptions that `app` handles itself."""
    match error:
        case ApiError():
            return error
        case ForbiddenError():
            return forbidden(str(error), job_status=error.job_status)
        case NotFoundError():
            return ApiError(404, {"message": f"404 Not Found - {error}"})
        case InvalidError():
            return ApiError(400, {"message": str(error)})
        case ConflictError():
            return ApiError(409, {"message": f"409 Conflict - {error}"})
        case TooLargeError():
            return too_large(str(error))
        case StoreError():
            return unavailable(str(error))
        case GitError():
            return ApiError(400, {"message": str(error)})
        case OSError() if error.errno in _DISK_ERRORS:
            return unavailable(f"a file operation of the cell failed: {error.strerror}")
        case _:
            return None
