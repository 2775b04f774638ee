"""Collects the exit code of child processes that have been killed."""

import asyncio


async def reap(process: asyncio.subprocess.Process) -> int:
    """Close the pipes of a killed process and return its exit code. `wait()` alone may hang, because a child of it may
    have a pipe open. Closing the whole asyncio transport would collect the exit code of a process that has just ended,
    and `wait()` would return 255."""
    for descriptor in range(3):
        pipe = process._transport.get_pipe_transport(descriptor)  # type: ignore[attr-defined]
        if pipe is not None:
            pipe.close()
    return await process.wait()
