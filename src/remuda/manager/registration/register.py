"""Adding a runner to a configuration file: ask the server first, then write the entry beside what is there.

A `glrt-` token belongs to a runner that exists on the server and is verified; any other is a registration token, with
which the server makes one. What belongs to the server (tags and the like) goes with the second kind only. A template, a
file with one `[[runners]]`, gives what is not asked for. The whole file as it will be is checked before the server
hears of anything. `remuda manager register` calls `register`.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from remuda.lib.clock import Clock, SystemClock
from remuda.manager.config.file import ConfigFile
from remuda.manager.errors import ConfigError, RegisterError
from remuda.manager.process.system_id import find_system_id, keep_system_id
from remuda.manager.registration.server_calls import refusal, server
from remuda.wire.runner_api import RegisterRunner, RunnerCredentials
from remuda.wire.runner_client import is_created_token

NEVER = datetime(1, 1, 1, tzinfo=UTC)
"""How gitlab-runner writes that a token does not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What the operator asks for."""

    url: str
    token: str
    name: str = ""
    executor: str = "shell"
    values: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the section, such as `{"limit": 2, "docker": {"image": "alpine"}}`."""
    template: Path | None = None
    tags: tuple[str, ...] = ()
    run_untagged: bool | None = None
    locked: bool | None = None
    paused: bool | None = None
    access_level: str = ""
    maximum_timeout: int = 0
    maintenance_note: str = ""

    @property
    def of_the_server(self) -> list[str]:
        """The options that a server keeps, where they are given."""
        given = {
            "--tag-list": self.tags,
            "--run-untagged": self.run_untagged is not None,
            "--locked": self.locked is not None,
            "--paused": self.paused is not None,
            "--access-level": self.access_level,
            "--maximum-timeout": self.maximum_timeout,
            "--maintenance-note": self.maintenance_note,
        }
        return [option for option, value in given.items() if value]


async def register(config_path: Path, wanted: Registration, *, clock: Clock | None = None) -> int:
    """Register with the server and write the entry; the runner's id there."""
    clock = clock or SystemClock()
    if is_created_token(wanted.token) and wanted.of_the_server:
        raise RegisterError(
            f"{', '.join(wanted.of_the_server)}: belongs to the server, where this runner was created; change it there"
        )
    file = ConfigFile.read(config_path, may_be_new=True)
    name = wanted.name or os.uname().nodename
    entry = _entry(wanted, name)
    file.add(entry)
    try:
        file.check()  # before the server makes something that cannot be written down
    except ConfigError as error:
        raise ConfigError(f"nothing is registered or written, since the file would not be right: {error}") from None
    own_id = find_system_id(config_path.parent)
    credentials = await _ask(wanted, name, own_id, entry, clock, beside=config_path.parent)
    entry |= {"id": credentials.id, "token": credentials.token or wanted.token} | times_of(credentials, clock)
    with ConfigFile.changed(config_path, may_be_new=True) as now:
        now.add(entry)
    try:
        keep_system_id(config_path.parent, own_id)  # not before: a registration that fails leaves nothing
    except OSError as error:
        raise RegisterError(f"{config_path.parent}: cannot be written: {error.strerror}") from error
    return credentials.id


async def _ask(
    wanted: Registration, name: str, own_id: str, entry: Mapping[str, Any], clock: Clock, *, beside: Path
) -> RunnerCredentials:
    async with server(
        url=wanted.url,
        token=wanted.token,
        system_id=own_id,
        executor=wanted.executor,
        clock=clock,
        keys=entry,
        beside=beside,
    ) as client:
        if is_created_token(wanted.token):
            reply = await client.verify()
        else:
            wish = RegisterRunner(
                description=name,
                tag_list=",".join(wanted.tags),
                run_untagged=not wanted.tags if wanted.run_untagged is None else wanted.run_untagged,
                locked=True if wanted.locked is None else wanted.locked,
                paused=bool(wanted.paused),
                access_level=wanted.access_level or None,
                maximum_timeout=wanted.maximum_timeout or None,
                maintenance_note=wanted.maintenance_note or None,
            )
            reply = await client.register(wish)
    if reply.credentials is not None and reply.credentials.id:
        return reply.credentials
    raise refusal(wanted.url, reply)


def times_of(credentials: RunnerCredentials, clock: Clock) -> dict[str, datetime]:
    """When a token was got and when it ends, as the file has it."""
    try:
        ends = datetime.fromisoformat(credentials.token_expires_at) if credentials.token_expires_at else NEVER
    except ValueError:
        ends = NEVER
    return {
        "token_obtained_at": datetime.fromtimestamp(int(clock.now()), UTC),
        "token_expires_at": ends if ends.tzinfo else ends.replace(tzinfo=UTC),
    }


def _entry(wanted: Registration, name: str) -> dict[str, Any]:
    """The section to be: gitlab-runner's order, then what the options say, over what the template says."""
    first = {
        "name": name,
        "url": wanted.url,
        "id": 0,
        "token": wanted.token,
        "token_obtained_at": NEVER,
        "token_expires_at": NEVER,
        "executor": wanted.executor,
    }
    return first | merged(_template(wanted.template), wanted.values)


def _template(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        runners = tomllib.loads(path.read_text(encoding="utf-8")).get("runners")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: the template cannot be read: {error}") from None
    if not isinstance(runners, list) or len(runners) != 1 or not isinstance(runners[0], dict):
        raise ConfigError(f"{path}: a template has exactly one [[runners]] section")
    owned = ("name", "url", "id", "token", "executor")
    return {key: value for key, value in runners[0].items() if key not in owned}


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two sections as one; where both say something the second counts."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
