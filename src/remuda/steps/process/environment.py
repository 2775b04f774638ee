"""Prepares environment variables for the processes of steps: selects those of the agent that steps may see, checks
those of a request, writes file variables, and separates variables that are too large for the kernel.

The kernel refuses programs whose environment is too large, so variables that do not fit become shell variables: the
script sees them, the programs it starts do not. `job_tree.evaluation` defines which source overrides which."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from sys import intern

from remuda.lib.dataclass import dataclass
from remuda.lib.files import write_whole
from remuda.steps.errors import BadRequestError
from remuda.steps.language.values import NAME
from remuda.wire.proto.agent_pb2 import StartRequest, Variable

ALLOWED = frozenset({"PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL"})
PROXIES = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
SERVER_CA = "CI_SERVER_TLS_CA_FILE"
AUTHORITIES = frozenset({SERVER_CA, "SSL_CERT_FILE", "SSL_CERT_DIR"})
"""Variables that name files with the certificates to trust."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

LARGEST_ENTRY_BYTES = 128 * 1024 - 1
"""Size up to which Linux accepts a `NAME=value`, including the NUL at its end."""
LARGEST_ENVIRONMENT_BYTES = 1024 * 1024
"""Half of what Linux accepts by default for arguments and environment together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Variables of a step's program. `too_large` ones, which the kernel refuses, are only set in a script's shell."""

    exported: Mapping[str, str]
    too_large: Mapping[str, str]


def clean_base(environ: Mapping[str, str]) -> dict[str, str]:
    """Return those variables of the agent's environment that steps may see, such as HOME, always with a PATH."""
    names = [name for name in environ if name in ALLOWED or name.startswith("LC_") or name.lower() in PROXIES]
    return {"PATH": DEFAULT_PATH} | {name: environ[name] for name in names}


def check_variables(request: StartRequest) -> None:
    """Raise BadRequestError if a variable has an invalid name, or (unless it is a file variable) a NUL in its value."""
    pairs = [*request.env.items(), *((variable.key, variable.value) for variable in request.variables)]
    for key, value in pairs:
        if not NAME.fullmatch(key):
            raise BadRequestError(f'variable "{key}": a name of letters, digits and _ is needed')
        if "\0" in value and not any(variable.key == key and variable.file for variable in request.variables):
            raise BadRequestError(f"variable {key}: its value holds a NUL byte, which no environment can carry")


def write_files(folder: Path, variables: Sequence[Variable], *, is_written: bool = False) -> dict[str, str]:
    """Return the job variables for the environment: the value, or for a file variable the path of a file in `folder`,
    which is written here unless `is_written`. Texts are interned, because thousands of jobs share most of them."""
    values: dict[str, str] = {}
    for variable in variables:
        if variable.file:
            path = folder / variable.key
            if not is_written:
                folder.mkdir(mode=0o700, exist_ok=True)
                write_whole(path, variable.value.encode())
            values[intern(variable.key)] = str(path)
        else:
            values[intern(variable.key)] = intern(variable.value)
    return values


def fit(env: Mapping[str, str]) -> Environment:
    """Split variables into those that fit a process's environment, smallest first, and those that are `too_large`."""
    # Fast path, because this runs for every step: no character takes more than four bytes.
    if sum(len(key) + len(value) + 2 for key, value in env.items()) * 4 <= LARGEST_ENTRY_BYTES:
        return Environment(exported=env, too_large={})
    exported: dict[str, str] = {}
    too_large: dict[str, str] = {}
    room = LARGEST_ENVIRONMENT_BYTES
    for key in sorted(env, key=lambda key: (len(env[key]), key)):
        size = len(os.fsencode(key)) + len(os.fsencode(env[key])) + 2
        if size <= LARGEST_ENTRY_BYTES and size <= room:
            exported[key] = env[key]
            room -= size
        else:
            too_large[key] = env[key]
    return Environment(exported=exported, too_large=too_large)
