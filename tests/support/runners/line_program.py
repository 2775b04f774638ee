"""Runs a program that makes one call for each JSON line on its stdin, and writes the answers to its stdout.

For the interop tests; the caller knows the program and its calls.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any


class LineProgram:
    """A running program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def call_raw(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Make a call. Returns the answer: an object with `result` or `error`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"call": name, **arguments}).encode() + b"\n")
        line = await self._process.stdout.readline()
        assert line, "the program has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def call(self, name: str, **arguments: Any) -> Any:
        """Make a call. Returns its result; an error fails the test."""
        answer = await self.call_raw(name, **arguments)
        assert "error" not in answer, answer
        return answer["result"]

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def line_program(*words: str, log: Path, end_seconds: float = 30) -> AsyncIterator[LineProgram]:
    """Start a program. When its stdin is closed at the end, it must exit with 0, unless it was killed."""
    with log.open("wb") as log_file:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log_file
        )
    assert process.stdin is not None
    program = LineProgram(process)
    try:
        yield program
    finally:
        is_killed = process.returncode is not None and process.returncode < 0
        process.stdin.close()
        try:
            async with asyncio.timeout(end_seconds):
                code = await process.wait()
        except TimeoutError:
            await program.kill()
            raise
    assert is_killed or code == 0, log.read_text(errors="replace")[-2000:]
