"""Asks a plugin's program for its version (any plugin) and for its schema (only plugins with Remuda's SDK). Blocks. The
program runs with a deadline, and without a host's environment variables, so that it does not start to serve."""

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
from remuda.fleeting.handshake import PREFIX as HOST_PREFIX
from remuda.fleeting.plugin_search import PREFIX
from remuda.lib.dataclass import dataclass
from remuda.plugins.exec_plugin import explain_start_error

SECONDS = 10.0
SCHEMA_SECONDS = 5.0
CAPABILITIES_KEY = "x-capabilities"
"""Key in a schema that has a list of the plugin's capabilities."""
_LINE = re.compile(r"^(Name|Version):[ \t]*(.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramInfo:
    name: str
    """Without the prefix `fleeting-plugin-`."""
    version: str


def by_hand(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables of a plugin host, as if a person started the program."""
    return {name: value for name, value in env.items() if name != COOKIE and not name.startswith(HOST_PREFIX)}


def read_version(printed: str) -> ProgramInfo | None:
    """Parse the output of `PROGRAM version`. None if its line `Name` or `Version` is missing."""
    lines = dict(_LINE.findall(printed))
    if not lines.get("Name") or not lines.get("Version"):
        return None
    return ProgramInfo(name=PurePath(lines["Name"]).name.removeprefix(PREFIX), version=lines["Version"])


def ask_version(program: Path, *, named: Path | None = None) -> ProgramInfo:
    """Run `PROGRAM version`; return name and version. Raises PermanentError if the program is not a plugin; its text
    names the path `named`, if set, instead of `program`, which may be a temporary copy."""
    name = named or program
    try:
        done = _answer(program, "version", SECONDS)
    except subprocess.TimeoutExpired:
        raise PermanentError(f"{name} version: no answer within {SECONDS:.0f} s; is it a plugin?") from None
    except OSError as error:
        raise PermanentError(f"{name} cannot be started: {explain_start_error(str(program), error)}") from None
    info = read_version(done.stdout.decode(errors="replace"))
    if done.returncode != 0 or info is None:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        said = f" ({lines[-1][:200]})" if lines else ""
        raise PermanentError(
            f"{name} version: ended with {done.returncode} and without lines Name: and Version:{said}; is it a plugin?"
        )
    return info


def ask_schema(program: Path) -> dict[str, Any] | None:
    """Run `PROGRAM schema`, and return the JSON schema of `plugin_config` that it prints; None if it prints none."""
    try:
        done = _answer(program, "schema", SCHEMA_SECONDS)
        return msgspec.json.decode(done.stdout, type=dict[str, Any]) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _answer(program: Path, word: str, seconds: float) -> "subprocess.CompletedProcess[bytes]":
    """Run a program with the argument `word`. After `seconds` kills its process group and raises TimeoutExpired."""
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
