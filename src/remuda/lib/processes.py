"""Collects the exit code of child processes that have been killed."""

import asyncio


async def reap(process: asyncio.subprocess.Process) -> int:
    """Close the pipes of a killed process, drop unread output, and return its exit code.

    `process.wait()` alone may hang: it returns only when every pipe is at its end. A pipe never gets there while it
    holds more data than is read, or while a surviving child process has it open.
    """
    process._transport.close()  # type: ignore[attr-defined]
    return await process.wait()
