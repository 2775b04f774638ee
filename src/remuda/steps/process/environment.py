"""The environment of a step's process, and what to do with variables that do not fit.

From the weakest to the strongest: a clean base of the agent's own environment, the request's, the job variables,
CI_JOB_STATUS, the step's. Nothing else of the agent's environment reaches a step.

The kernel refuses a program whose environment is too large. Variables that do not fit become plain shell variables of
the script's shell: the script sees them, the programs it starts do not. Pure, except for file variables.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from sys import intern

from remuda.lib.dataclass import dataclass
from remuda.lib.files import write_whole
from remuda.steps.errors import BadRequestError
from remuda.steps.language.values import NAME
from remuda.wire.proto.agent_pb2 import StartRequest, Variable

KEPT = frozenset({"PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL"})
PROXIES = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
SERVER_CA = "CI_SERVER_TLS_CA_FILE"
AUTHORITIES = frozenset({SERVER_CA, "SSL_CERT_FILE", "SSL_CERT_DIR"})
"""Variables that name files with the certificates to trust."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

LARGEST_ENTRY_BYTES = 128 * 1024 - 1
"""Linux accepts no longer `NAME=value`, its NUL included."""
LARGEST_ENVIRONMENT_BYTES = 1024 * 1024
"""Half of what Linux accepts by default for arguments and environment together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a step's program gets, and what only its shell can be given."""

    exported: Mapping[str, str]
    too_large: Mapping[str, str]


def clean_base(environ: Mapping[str, str]) -> dict[str, str]:
    """What a step may see of the agent's own environment."""
    allowed = {
        key: value for key, value in environ.items() if key in KEPT or key.startswith("LC_") or key.lower() in PROXIES
    }
    return {"PATH": DEFAULT_PATH} | allowed


def check_variables(request: StartRequest) -> None:
    """Refuse variables that no process can be given."""
    pairs = [*request.env.items(), *((variable.key, variable.value) for variable in request.variables)]
    for key, value in pairs:
        if not NAME.fullmatch(key):
            raise BadRequestError(f'variable "{key}": a name of letters, digits and _ is needed')
        if "\0" in value and not any(variable.key == key and variable.file for variable in request.variables):
            raise BadRequestError(f"variable {key}: its value holds a NUL byte, which no environment can carry")


def write_files(folder: Path, variables: Sequence[Variable], *, is_written: bool = False) -> dict[str, str]:
    """Job variables as they are in the environment: the value, or the path of a file with it. Values are interned,
    because thousands of jobs have most of them in common. `is_written`: the files exist and stay as they are."""
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
    """Export as much as a process can have, small entries first."""
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
