"""Collects the exit code of child processes that have been killed."""

import asyncio


async def reap(process: asyncio.subprocess.Process) -> int:
    """Close the pipes of a killed process, drop unread output, and return its exit code.

    `process.wait()` alone may hang: it waits for the end of every pipe, which a surviving child may hold open.
    """
    process._transport.close()  # type: ignore[attr-defined]
    return await process.wait()
