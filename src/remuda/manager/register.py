"""Adding a runner to a configuration file: ask the server first, then write the entry beside what is there.

A `glrt-` token belongs to a runner that exists on the server and is verified; any other is a registration token, with
which the server makes one. The file keeps its comments and order, is readable by its owner only, and is replaced as a
whole, so a crash leaves the old one or the new one. `remuda manager register` calls `register`.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions

from remuda.lib.clock import Clock, SystemClock, rfc3339
from remuda.lib.files import write_whole
from remuda.manager.config import parse
from remuda.manager.errors import ConfigError, RegisterError
from remuda.manager.features import runner_info
from remuda.manager.system_id import find_system_id, keep_system_id
from remuda.wire.runner_api import RegisterRunner, RunnerCredentials
from remuda.wire.runner_client import RunnerApiTemporaryError, RunnerClient, new_session, tls_context

_NEW_FILE = {"concurrent": 1, "check_interval": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What the operator asks for; tags and the like belong to the server where the token is a `glrt-` one."""

    url: str
    token: str
    name: str = ""
    executor: str = "shell"
    tags: tuple[str, ...] = ()
    run_untagged: bool = True
    builds_dir: str = ""
    limit: int = 0
    tls_ca_file: str = ""


async def register(config_path: Path, wanted: Registration, *, clock: Clock | None = None) -> int:
    """Register with the server and write the entry; the runner's id there."""
    clock = clock or SystemClock()
    document = _read(config_path)
    name = wanted.name or os.uname().nodename
    entry = _entry(wanted, name, token=wanted.token)
    _check(document, entry, config_path)  # before the server makes something that cannot be written down
    try:
        folder = config_path.parent
        folder.mkdir(parents=True, exist_ok=True)
        own_id = find_system_id(folder)
        credentials = await _ask(wanted, name, own_id, clock)
        keep_system_id(folder, own_id)  # not before: a registration that fails leaves nothing
        entry = _entry(wanted, name, token=credentials.token or wanted.token)
        entry["id"] = credentials.id
        entry["token_obtained_at"] = rfc3339(clock.now())
        entry["token_expires_at"] = credentials.token_expires_at or "0001-01-01T00:00:00Z"
        _append(document, entry)
        write_whole(config_path, tomlkit.dumps(document).encode(), durable=True)
    except OSError as error:
        raise RegisterError(f"{config_path}: cannot be written: {error.strerror}") from error
    return credentials.id


async def _ask(wanted: Registration, name: str, manager_id: str, clock: Clock) -> RunnerCredentials:
    tls = tls_context(ca_file=wanted.tls_ca_file) if wanted.tls_ca_file else None
    is_created = wanted.token.startswith("glrt-")
    async with new_session() as session:
        client = RunnerClient(
            url=wanted.url,
            token=wanted.token,
            system_id=manager_id,
            info=runner_info(executor=wanted.executor),
            session=session,
            clock=clock,
            tls=tls,
        )
        try:
            if is_created:
                reply = await client.verify()
            else:
                wish = RegisterRunner(
                    description=name,
                    tag_list=",".join(wanted.tags),
                    run_untagged=wanted.run_untagged,
                    locked=True,
                    paused=False,
                )
                reply = await client.register(wish)
        except RunnerApiTemporaryError as error:
            raise RegisterError(f"the server cannot be reached: {error}. Check the address and try again.") from error
    if reply.credentials is not None and reply.credentials.id:
        return reply.credentials
    said = f" ({reply.message})" if reply.message else ""
    causes = {
        403: "the token is not valid there; create a runner on the server and use its glrt- token",
        404: "there is no Runner API at this address; give the server's own address, without a project's path",
        410: "the server does not take registration tokens; create a runner there and use its glrt- token",
        422: "the runner has lost its owner; create a new one on the server",
    }
    cause = causes.get(reply.status, "the answer is not what a GitLab server or a Remuda cell sends")
    raise RegisterError(f"{wanted.url} answered {reply.status}{said}: {cause}")


def _read(path: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        document = tomlkit.document()
        document.update(_NEW_FILE)
        return document
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except tomlkit.exceptions.ParseError as error:
        raise ConfigError(f"{path}:{error.line}: not valid TOML: {error}") from None


def _entry(wanted: Registration, name: str, *, token: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "url": wanted.url, "id": 0, "token": token}
    optional = {"builds_dir": wanted.builds_dir, "limit": wanted.limit, "tls-ca-file": wanted.tls_ca_file}
    return entry | {"executor": wanted.executor} | {key: value for key, value in optional.items() if value}


def _check(document: tomlkit.TOMLDocument, entry: dict[str, Any], path: Path) -> None:
    """The whole file as it will be must be one that the manager takes."""
    trial = tomlkit.parse(tomlkit.dumps(document))
    _append(trial, entry)
    parse(tomlkit.dumps(trial), file=str(path), environment=os.environ)


def _append(document: tomlkit.TOMLDocument, entry: dict[str, Any]) -> None:
    table = tomlkit.table()
    table.update(entry)
    if "runners" not in document:
        document.append("runners", tomlkit.aot())
    runners = document["runners"]
    if not isinstance(runners, tomlkit.items.AoT):
        raise ConfigError("runners: is not a list of [[runners]] sections")
    runners.append(table)
