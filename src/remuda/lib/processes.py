"""Waiting for child processes that have been killed."""

import asyncio


async def reap(process: asyncio.subprocess.Process) -> int:
    """Close the pipes of a process that was killed, drop what nobody read, and return its exit code.

    `process.wait()` returns only when every pipe is at its end. A pipe never gets there while it holds more than its
    reader takes, or while a child that outlived the process has it open, so `wait()` alone may wait for ever.
    """
    process._transport.close()  # type: ignore[attr-defined]
    return await process.wait()
