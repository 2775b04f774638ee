"""Calls of the cell's HTTP API from a web page, inside the process and with the rights of the page's user.

The call passes the same router, access checks and handlers as a request over the network; only connection, rate limit
and log entry are left out, which the request for the page already has."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Scope

from remuda.cell.http.edge.admission import ANONYMOUS, PAGE_CALLER, Caller
from remuda.cell.http.edge.errors import ApiError, refusal, unwrap

MOST_PAGES = 100
"""`get_all` reads at most this many pages of a list."""
_PER_PAGE = 100


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a successful call."""

    value: Any
    """The decoded JSON, or None if there is no content."""
    headers: Mapping[str, str]

    @property
    def total(self) -> int:
        """The number of entries of a list on all its pages; 0 if the API does not tell it."""
        return int(self.headers.get("x-total", "0"))

    @property
    def next_page(self) -> int | None:
        text = self.headers.get("x-next-page", "")
        return int(text) if text else None


class PageApi:
    """Calls the API for one page. `scope` is that of the request for the page."""

    def __init__(self, api: ASGIApp, scope: Scope, caller: Caller) -> None:
        self._api = api
        self._scope = scope
        self._caller = caller

    async def get(self, path: str, /, **query: Any) -> Any:
        """Return the decoded JSON of a GET. `query`: parameters; those that are None or empty are left out. Raises
        ApiError as the API would answer."""
        return (await self.call("GET", path, query)).value

    async def get_all(self, path: str, /, *, most_pages: int = MOST_PAGES, **query: Any) -> list[Any]:
        """Return all entries of a paged list, at most `most_pages` * 100."""
        entries: list[Any] = []
        page: int | None = 1
        while page is not None and page <= most_pages:
            reply = await self.call("GET", path, {**query, "page": page, "per_page": _PER_PAGE})
            entries += reply.value
            page = reply.next_page
        return entries

    async def find(self, path: str, /, **query: Any) -> Any:
        """Like `get`, but None if the API answers 403 or 404: the user may not see it, or it does not exist; and 401 if
        nobody is signed in."""
        try:
            return await self.get(path, **query)
        except ApiError as error:
            if error.status in (403, 404) or (error.status == 401 and self._caller is ANONYMOUS):
                return None
            raise

    async def call(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: object = None) -> Reply:
        """Call the API. `path` is percent-encoded. Raises ApiError as the API would answer."""
        content = b"" if body is None else msgspec.json.encode(body)
        status, headers, answer = await self._send(method, path, _encode(query or {}), content)
        if status >= 400:
            raise ApiError(status, msgspec.json.decode(answer) if answer else {})
        return Reply(value=msgspec.json.decode(answer) if answer else None, headers=headers)

    async def _send(self, method: str, path: str, query: bytes, body: bytes) -> tuple[int, dict[str, str], bytes]:
        scope = {
            **{name: self._scope[name] for name in ("type", "asgi", "http_version", "server", "client", "scheme")},
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query,
            "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))],
            "app": self._scope["app"],
            "request_id": self._scope["request_id"],
            "state": {},
            PAGE_CALLER: self._caller,
        }
        answer = _Answer(body)
        try:
            await self._api(scope, answer.receive, answer.send)
        except HTTPException as error:
            raise ApiError(error.status_code, {"message": f"{error.status_code} {error.detail}"}) from None
        except Exception as error:
            if (refused := refusal(unwrap(error))) is None:
                raise
            raise refused from error
        return answer.status, answer.headers, b"".join(answer.pieces)


class _Answer:
    """Receives the answer of a call. Only complete answers are used, so nothing is streamed."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []

    async def receive(self) -> Message:
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]
            }
        else:
            self.pieces.append(message.get("body", b""))


def _encode(query: Mapping[str, Any]) -> bytes:
    pairs = []
    for name, value in query.items():
        if isinstance(value, list | tuple):
            pairs += [(f"{name}[]", str(entry)) for entry in value]
        elif value not in (None, ""):
            pairs.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
    return urlencode(pairs).encode()
