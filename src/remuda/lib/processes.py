"""Collects the exit code of child processes that have been killed."""

import asyncio


async def reap(process: asyncio.subprocess.Process) -> int:
    """Close the pipes of a killed process and return its exit code. `wait()` may hang: a child may hold a pipe open."""
    process._transport.close()  # type: ignore[attr-defined]
    return await process.wait()
