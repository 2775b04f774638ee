"""Answers that are sent piece by piece, as far as somebody reads them. `connections` cuts off who does not read.

Starlette has the same over another library for tasks, which is large and used for nothing else here. `trace` and
`artifacts` are the callers.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class Streamed(Response):
    """An answer whose bytes come from an iterator, if there are any; the headers say how many."""

    def __init__(
        self, pieces: AsyncGenerator[bytes, None] | None, status_code: int, headers: Mapping[str, str], media_type: str
    ) -> None:
        self.status_code = status_code
        self.media_type = media_type
        self.background = None
        self.init_headers(headers)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if self._pieces is not None:
            # Closed at once when nobody reads any more, with the files it has open.
            async with contextlib.aclosing(self._pieces), asyncio.TaskGroup() as group:
                leaving = group.create_task(_wait_for_disconnect(receive), name="reader of an answer")
                try:
                    async for piece in self._pieces:
                        if leaving.done():
                            return
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                finally:
                    leaving.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
