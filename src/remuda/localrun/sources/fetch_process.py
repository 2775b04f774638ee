"""Runs `git fetch` with the user's own credentials: git's configuration, credential helpers, the SSH agent. The first
attempt cannot ask anything and is ended when the server is silent; if it fails because of missing credentials and a
terminal is there, git may ask on it in a second attempt. Invariant: no process of git outlives this one's end by a stop
signal."""

import os
import re
import selectors
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from remuda.lib.signals import STOPPING
from remuda.localrun.sources.git_environment import quiet_environment
from remuda.pipeline.errors import printable
from remuda.stdsteps.checkout.git import find_reason, is_transient

SILENCE_SECONDS = 20.0
"""A server that sends nothing for so long does not answer. git reports its progress every second."""

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_NEEDS_PERSON = re.compile(
    r"could not read (username|password)|authentication failed|permission denied|host key verification failed"
    r"|terminal prompts disabled",
    re.IGNORECASE,
)


class FetchFailure(NamedTuple):
    """Why a fetch failed, in git's words without credentials."""

    reason: str
    is_unanswered: bool
    """The server could not be reached or did not answer as a git server; otherwise it refused the request."""
    is_locked: bool = False
    """A lock file is in the way, which a killed git has left."""
    needs_person: bool = False
    """The server wants credentials that git does not have, or has an unknown host key."""


def fetch(repository: Path, url: str, refspecs: Sequence[str], *, can_ask: bool) -> FetchFailure | None:
    """Fetch the refs into a bare repository. Returns None on success. `can_ask`: git may ask on the terminal."""
    command = [
        *("git", "-c", "gc.autoDetach=false", "-c", "maintenance.autoDetach=false", "-c", "core.hooksPath=/dev/null"),
        # The permission is for one server; another would also get headers that the user's configuration adds.
        *("-c", "http.followRedirects=false"),
        *("--git-dir", str(repository), "fetch", "--progress", "--prune", "--no-tags", "--force"),
        *("--no-write-fetch-head", "--no-recurse-submodules", "--end-of-options", url, *refspecs),
    ]
    failure = _run_silent(command, repository)
    if failure is not None and failure.needs_person and can_ask:
        return _run_on_terminal(command, repository)
    return failure


def _environment(*, can_ask: bool) -> dict[str, str]:
    # No other transports: `ext::` runs commands, and local paths are given with --project.
    allowed = {"GIT_ALLOW_PROTOCOL": "http:https:ssh:git", "GIT_TERMINAL_PROMPT": "1" if can_ask else "0"}
    return quiet_environment() | allowed


def _run_silent(command: Sequence[str], folder: Path) -> FetchFailure | None:
    # In a session without a terminal neither git nor ssh can wait for an answer.
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=_environment(can_ask=False),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with _end_with_this_process(process):
        text = _read_until_silent(process)
    if text is None:
        return FetchFailure(f"no answer within {SILENCE_SECONDS:.0f} s", is_unanswered=True)
    return _failure(text) if process.returncode else None


def _run_on_terminal(command: Sequence[str], folder: Path) -> FetchFailure | None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=_environment(can_ask=True),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    return _failure(done.stderr.decode(errors="replace")) if done.returncode else None


def _read_until_silent(process: "subprocess.Popen[bytes]") -> str | None:
    """Return the error output of a process at its end; None after killing it because it was silent for too long."""
    assert process.stderr is not None
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while True:
            if not selector.select(SILENCE_SECONDS):
                _kill(process)
                return None
            piece = os.read(process.stderr.fileno(), 65536)
            if not piece:
                return data.decode(errors="replace")
            # The reason is at the end, after the progress.
            data = (data + piece)[-65536:]


def _failure(text: str) -> FetchFailure:
    lines = [line for line in text.replace("\r", "\n").splitlines() if line.strip()]
    if len(lines) > 1 and "fatal: Could not read from remote repository" in text:
        # The reason is what ssh wrote before.
        lines = [
            line for line in lines if not line.startswith(("fatal: Could not read", "Please make sure", "and the"))
        ]
    errors = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    reason = re.sub(r"^(fatal|error): ", "", errors[0] if errors else find_reason("\n".join(lines)))
    needs_person = bool(_NEEDS_PERSON.search(text))
    return FetchFailure(
        printable(_CREDENTIALS.sub("", reason), 300),
        is_unanswered=is_transient(text) and not needs_person,
        is_locked=".lock': File exists" in text,
        needs_person=needs_person,
    )


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _end_with_this_process(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Kill the process group when the block ends early, also by a stop signal, which its session does not get."""
    before: dict[int, Any] = {number: signal.getsignal(number) for number in STOPPING}

    def stop(number: int, _: FrameType | None) -> None:
        _kill(process)
        signal.signal(number, before[number])
        signal.raise_signal(number)

    failed = True
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, stop)
        yield
        failed = False
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if process.stderr is not None:
            process.stderr.close()
        if failed:
            _kill(process)
        process.wait()
