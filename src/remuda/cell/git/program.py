"""Runs the `git` program for the repositories below one folder: sets its environment, deadline and output limits.

Invariant: a git process, with its helper processes, has ended when the method that started it returns; after `start`,
the caller is responsible for that."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from remuda.cell.errors import CellError, StoreError, TooLargeError
from remuda.cell.git.port import GitError
from remuda.lib.processes import reap

DEADLINE_SECONDS = 60
STOP_SECONDS = 3
"""How long git may take to remove its temporary files after its input has ended; then it is killed."""
_DISK = ("No space left on device", "Out of diskspace", "Disk quota exceeded", "Read-only file system")


class GitProgram:
    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self.root = root
        self.environment = dict(environment)

    def path(self, repo: str) -> Path:
        return self.root / repo

    async def run(self, *args: str, repo: str | None = None) -> bytes:
        """Run git; return its stdout. GitError if it fails, StoreError if it cannot start or write to the disk."""
        code, out, err = await self.call(*args, repo=repo)
        if code != 0:
            raise self.failure(args[0], err)
        return out

    async def call(self, *args: str, repo: str | None = None, stdin: Iterable[bytes] = ()) -> tuple[int, bytes, bytes]:
        """Run git; return exit code, stdout and stderr, also if it fails. Raises GitError after the deadline."""
        process = await self.start(*args, repo=repo, with_input=bool(stdin))
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                out, err = await process.communicate(b"".join(stdin) if stdin else None)
                return await process.wait(), out, err
        except TimeoutError:
            raise late(args[0]) from None
        finally:
            await end_git(process)

    async def read(self, *args: str, repo: str, what: str, limit_bytes: int) -> tuple[int, bytes]:
        """Run git; return exit code and stdout. TooLargeError, which names `what`, if stdout exceeds `limit_bytes`."""
        process = await self.start(*args, repo=repo)
        assert process.stdout is not None
        content = bytearray()
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while piece := await process.stdout.read(65536):
                    content += piece
                    if len(content) > limit_bytes:
                        raise TooLargeError(f"{what} is larger than {limit_bytes} bytes")
                return await process.wait(), bytes(content)
        except TimeoutError:
            raise late(args[0]) from None
        finally:
            await end_git(process)

    async def start(
        self, *args: str, repo: str | None = None, with_input: bool = False, environment: Mapping[str, str] = {}
    ) -> asyncio.subprocess.Process:
        """Start git; the caller must end the process. Raises StoreError if it cannot be started. `with_input`: stdin is
        a pipe, else empty. `environment`: variables in addition to those of all git processes. With `repo=None` git
        runs in the folder of the repositories, never in the working directory of the cell: that may be somebody else's
        git repository."""
        where = ("-C", str(self.root)) if repo is None else ("--git-dir", str(self.path(repo)))
        try:
            return await asyncio.create_subprocess_exec(
                "git",
                *where,
                *args,
                stdin=asyncio.subprocess.PIPE if with_input else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**self.environment, **environment},
                # A group of its own: git starts helpers, and they end with it.
                start_new_session=True,
            )
        except OSError as error:
            raise StoreError(f"cannot start git: {error}") from error

    def failure(self, command: str, err: bytes) -> CellError:
        """Return the error for a git failure by its stderr: StoreError for a full or read-only disk, else GitError."""
        text = self.hide_root(err.decode(errors="replace")).strip()[-500:] or "no message"
        kind = StoreError if any(cause in text for cause in _DISK) else GitError
        return kind(f"git {command}: {text}")

    def hide_root(self, text: str) -> str:
        """Remove the path of the repositories' folder from a message of git, because users may see the message."""
        return text.replace(f"{self.root}/", "")


def late(command: str) -> GitError:
    return GitError(f"git {command} took longer than {DEADLINE_SECONDS} s")


async def end_git(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        kill_git(process)
    await reap(process)


async def stop_git(process: asyncio.subprocess.Process) -> None:
    """Close git's input and give it a few seconds to remove its temporary files; kill it if it still runs then."""
    if process.returncode is None and process.stdin is not None:
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
    await end_git(process)


def kill_git(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
