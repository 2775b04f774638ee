"""Registers a runner: calls the server, then adds an entry to the configuration file.

A `glrt-` token belongs to a runner that already exists on the server, so it is only verified. Any other token is a
registration token, with which the server creates a runner; only then can server-side options, such as tags, be given.
The new file is checked before the server is called."""

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
from remuda.manager.registration.server_calls import open_client, refusal
from remuda.manager.registration.system_id import find_system_id, keep_system_id
from remuda.wire.runner_api import RegisterRunner, RunnerCredentials
from remuda.wire.runner_client import is_created_token

NEVER = datetime(1, 1, 1, tzinfo=UTC)
"""gitlab-runner's value for a token that does not expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The options of `remuda manager register`."""

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
    def server_options(self) -> list[str]:
        """Names of the given command line options whose values are stored on the server."""
        values = {
            "--tag-list": self.tags,
            "--run-untagged": self.run_untagged is not None,
            "--locked": self.locked is not None,
            "--paused": self.paused is not None,
            "--access-level": self.access_level,
            "--maximum-timeout": self.maximum_timeout,
            "--maintenance-note": self.maintenance_note,
        }
        return [option for option, value in values.items() if value]


async def register(config_path: Path, options: Registration, *, clock: Clock | None = None) -> int:
    """Register a runner, add its section to the file, and return its id. Raises RegisterError if the server refuses or
    is unreachable, ConfigError if the file would be invalid."""
    clock = clock or SystemClock()
    if is_created_token(options.token) and options.server_options:
        raise RegisterError(
            f"{', '.join(options.server_options)}: stored on the server, where this runner was created; change it there"
        )
    file = ConfigFile.read(config_path, may_be_new=True)
    name = options.name or os.uname().nodename
    entry = _entry(options, name)
    file.add(entry)
    try:
        file.check()  # before the server creates a runner that cannot be written to the file
    except ConfigError as error:
        raise ConfigError(f"nothing was registered or written, because the file would be invalid: {error}") from None
    own_id = find_system_id(config_path.parent)
    credentials = await _register(options, name, own_id, entry, clock, beside=config_path.parent)
    entry |= {"id": credentials.id, "token": credentials.token or options.token} | times_of(credentials, clock)
    with ConfigFile.edit(config_path, may_be_new=True) as current:
        current.add(entry)
    try:
        keep_system_id(config_path.parent, own_id)  # last: a failed registration leaves nothing
    except OSError as error:
        raise RegisterError(f"{config_path.parent}: cannot be written: {error.strerror}") from error
    return credentials.id


async def _register(
    options: Registration, name: str, own_id: str, entry: Mapping[str, Any], clock: Clock, *, beside: Path
) -> RunnerCredentials:
    async with open_client(
        url=options.url,
        token=options.token,
        system_id=own_id,
        executor=options.executor,
        clock=clock,
        keys=entry,
        beside=beside,
    ) as client:
        if is_created_token(options.token):
            reply = await client.verify()
        else:
            request = RegisterRunner(
                description=name,
                tag_list=",".join(options.tags),
                run_untagged=not options.tags if options.run_untagged is None else options.run_untagged,
                locked=True if options.locked is None else options.locked,
                paused=bool(options.paused),
                access_level=options.access_level or None,
                maximum_timeout=options.maximum_timeout or None,
                maintenance_note=options.maintenance_note or None,
            )
            reply = await client.register(request)
    if reply.credentials is not None and reply.credentials.id:
        return reply.credentials
    raise refusal(options.url, reply)


def times_of(credentials: RunnerCredentials, clock: Clock) -> dict[str, datetime]:
    """Return the values of `token_obtained_at` and `token_expires_at` for the configuration file."""
    try:
        ends = datetime.fromisoformat(credentials.token_expires_at) if credentials.token_expires_at else NEVER
    except ValueError:
        ends = NEVER
    return {
        "token_obtained_at": datetime.fromtimestamp(int(clock.now()), UTC),
        "token_expires_at": ends if ends.tzinfo else ends.replace(tzinfo=UTC),
    }


def _entry(options: Registration, name: str) -> dict[str, Any]:
    """Return the new `[[runners]]` section: keys in gitlab-runner's order, then the template's; options override it."""
    first = {
        "name": name,
        "url": options.url,
        "id": 0,
        "token": options.token,
        "token_obtained_at": NEVER,
        "token_expires_at": NEVER,
        "executor": options.executor,
    }
    return first | merge(_template(options.template), options.values)


def _template(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        runners = tomllib.loads(path.read_text(encoding="utf-8")).get("runners")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: the template cannot be read: {error}") from None
    if not isinstance(runners, list) or len(runners) != 1 or not isinstance(runners[0], dict):
        raise ConfigError(f"{path}: a template must have exactly one [[runners]] section")
    owned = ("name", "url", "id", "token", "executor")
    return {key: value for key, value in runners[0].items() if key not in owned}


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two sections with their subsections. If both have a key, the value of `above` is used."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
