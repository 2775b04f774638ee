"""The step `secrets`: exports secrets from Vault, from files or from other variables to the steps that follow. A value
is registered for masking before it is used, and appears in no output and no line of the log. A secret of type file is
written to a folder in REMUDA_EXCHANGE, which is deleted with the job, and the variable contains its path. If one secret
cannot be fetched, the step fails."""

import json
import os
import re
from pathlib import Path
from typing import Any

from remuda.lib.masking import Secrets
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import append_lines, write_outputs
from remuda.stdsteps.secrets.vault import Vault, read_secret

FOLDER = "secret-files"
"""A folder in the exchange folder. The exchange folder also has a file for each file variable, but no variable can have
this name."""
LARGEST_BYTES = 1024 * 1024
SOURCES = ("vault", "local_file", "environment")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def run(inputs: Inputs) -> None:
    requests, logins = inputs.mapping("secrets"), inputs.mapping("logins")
    vault = Vault(answer_seconds=inputs.number("timeout_seconds", 30) or 30)
    inputs.done()
    values: dict[str, str] = {}
    files: dict[str, bool] = {}
    sources: dict[str, str] = {}
    try:
        for name, request in requests.items():
            if not _NAME.fullmatch(name) or not isinstance(request, dict):
                raise StepError(
                    f"secret {name!r}: its name must consist of letters, digits and _, and its value be a mapping"
                )
            secret = Inputs(request)
            files[name] = secret.flag("file", True)
            try:
                sources[name], values[name] = _fetch(secret, request, logins.get(name, {}), vault, is_file=files[name])
            except StepError as error:
                raise type(error)(f"secret {name}: {error}") from None
            _mask(values[name])
            if "\0" in values[name] and not files[name]:
                raise StepError(
                    f"secret {name}: its value has a NUL byte, which only a secret with file: true can have"
                )
    finally:
        vault.log_out()
    exported = {name: _write_file(name, value) if files[name] else value for name, value in values.items()}
    _export(exported)
    for name, source in sources.items():
        say(f"{name}: from {source}, as {'a file' if files[name] else 'a variable'}")
    write_outputs(names=list(values), sources=sources, files=[name for name in values if files[name]])


def _fetch(secret: Inputs, request: dict[str, Any], login: Any, vault: Vault, *, is_file: bool) -> tuple[str, str]:
    kinds = [kind for kind in SOURCES if request.get(kind) is not None]
    if len(kinds) != 1:
        raise StepError(f"must have exactly one of {', '.join(SOURCES)}")
    source = Inputs(secret.mapping(kinds[0]))
    secret.done()
    match kinds[0]:
        case "vault":
            return "vault", vault.read_value(read_secret(source, login if isinstance(login, dict) else {}))
        case "environment":
            variable = source.text("name")
            source.done()
            if variable not in os.environ:
                raise StepError(f"the variable {variable} is not set")
            return "environment", os.environ[variable]
    path = Path(source.text("path"))
    source.done()
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise StepError(f"{path}: {error.strerror}") from None
    if len(data) > LARGEST_BYTES:
        raise StepError(f"{path} has more than {LARGEST_BYTES} bytes")
    text = data.decode("utf-8", "surrogateescape")
    # The newline at the end of the file is not part of the secret.
    return "local_file", text if is_file else text.removesuffix("\n").removesuffix("\r")


def _mask(value: str) -> None:
    path = os.environ.get("REMUDA_MASKS")
    if path:
        append_lines(path, list(Secrets([value]).texts))


def _write_file(name: str, value: str) -> str:
    exchange = os.environ.get("REMUDA_EXCHANGE")
    if not exchange:
        raise StepError("REMUDA_EXCHANGE is not set; only the step runner can start standard steps")
    folder = Path(exchange) / FOLDER
    if not folder.is_dir():
        folder.mkdir(mode=0o700)
    # A job may have put a link there, which must not be followed.
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if name in os.listdir(inside):
            os.unlink(name, dir_fd=inside)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, 0o600, dir_fd=inside), "wb") as file:
            file.write(value.encode("utf-8", "surrogateescape"))
    finally:
        os.close(inside)
    return str(folder / name)


def _export(values: dict[str, str]) -> None:
    path = os.environ.get("REMUDA_EXPORTS")
    if not path:
        raise StepError("REMUDA_EXPORTS is not set; only the step runner can start standard steps")
    append_lines(path, [json.dumps({"name": name, "value": value}).encode() for name, value in values.items()])
