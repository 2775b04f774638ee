"""Drives a program of another language that makes one call a line: JSON on its stdin, the answer on its stdout.

For tests against peers (`make interop`); which program it is, and which calls there are, is the caller's business.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any


class LineProgram:
    """One that runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def answer(self, name: str, **given: Any) -> dict[str, Any]:
        """As it came: a result, or an error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"call": name, **given}).encode() + b"\n")
        line = await self._process.stdout.readline()
        assert line, "the program has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def call(self, name: str, **given: Any) -> Any:
        """The result; an error fails the test."""
        answer = await self.answer(name, **given)
        assert "error" not in answer, answer
        return answer["result"]

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def line_program(*words: str, log: Path, end_seconds: float = 30) -> AsyncIterator[LineProgram]:
    """It ends by itself, and with 0, when its stdin does; unless it was killed."""
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=written
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
