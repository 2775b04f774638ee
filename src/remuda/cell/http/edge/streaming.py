"""Responses that are sent piece by piece, as fast as the client reads. Starlette's StreamingResponse is not used,
because it runs its tasks with anyio, a library that nothing else here uses."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from remuda.cell.http.edge.bodies import HangUp


class Streamed(Response):
    """A response whose body comes from the iterator `pieces` (None: no body). `headers` need a Content-Length."""

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
            # Closes the iterator and its open files as soon as the client disconnects.
            async with contextlib.aclosing(self._pieces), asyncio.TaskGroup() as group:
                hang_up = group.create_task(HangUp(receive).wait(), name="wait for disconnect")
                try:
                    async for piece in self._pieces:
                        if hang_up.done():
                            return
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                finally:
                    hang_up.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
