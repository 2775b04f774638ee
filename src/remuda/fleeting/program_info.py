"""Asks the program of a plugin about itself: `PROGRAM version`, as all plugins of upstream's SDK and of ours answer,
and `PROGRAM schema`, which ours do.

The program is run with a deadline, and with nothing of a host's environment, so that it does not begin to serve.
Blocks.
"""

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

import msgspec

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.handshake import COOKIE
from remuda.fleeting.handshake import PREFIX as TOLD
from remuda.fleeting.plugin_search import PREFIX
from remuda.lib.dataclass import dataclass
from remuda.plugins.launch import explain_start_error

SECONDS = 10.0
SCHEMA_SECONDS = 5.0
CAPABILITIES_KEY = "x-capabilities"
"""Of a schema: what the plugin can, a list of names."""
_LINE = re.compile(r"^(Name|Version):[ \t]*(.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramInfo:
    """What a program says of itself."""

    name: str
    """Without the prefix."""
    version: str


def by_hand(env: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a plugin does not take us for a host."""
    return {name: value for name, value in env.items() if name != COOKIE and not name.startswith(TOLD)}


def read_version(printed: str) -> ProgramInfo | None:
    """None: it does not say. Pure."""
    found = dict(_LINE.findall(printed))
    if not found.get("Name") or not found.get("Version"):
        return None
    return ProgramInfo(name=PurePath(found["Name"]).name.removeprefix(PREFIX), version=found["Version"])


def ask_version(program: Path, *, named: Path | None = None) -> ProgramInfo:
    """PermanentError, with the name that people know it by, where no answer comes that can be used."""
    name = named or program
    try:
        done = _answer(program, "version", SECONDS)
    except subprocess.TimeoutExpired:
        raise PermanentError(f"{name} version: no answer within {SECONDS:.0f} s; is it a plugin?") from None
    except OSError as error:
        raise PermanentError(f"{name} cannot be started: {explain_start_error(str(program), error)}") from None
    told = read_version(done.stdout.decode(errors="replace"))
    if done.returncode != 0 or told is None:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        said = f" ({lines[-1][:200]})" if lines else ""
        raise PermanentError(
            f"{name} version: ended with {done.returncode} and without lines Name: and Version:{said}; is it a plugin?"
        )
    return told


def ask_schema(program: Path) -> dict[str, Any] | None:
    """The JSON schema of its `plugin_config`; None: it does not say, as most that are not made with our SDK."""
    try:
        done = _answer(program, "schema", SCHEMA_SECONDS)
        return msgspec.json.decode(done.stdout, type=dict[str, Any]) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _answer(program: Path, word: str, seconds: float) -> "subprocess.CompletedProcess[bytes]":
    """All of a process that takes too long is ended, and TimeoutExpired raised."""
    with subprocess.Popen(
        [str(program.absolute()), word],
        env=by_hand(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            printed, said = process.communicate(timeout=seconds)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, printed, said)
