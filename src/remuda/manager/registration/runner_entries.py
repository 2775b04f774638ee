"""Operations on the runners of a configuration file: list, verify, unregister, reset tokens. For each runner the server
is called first, then the file is written; after a crash in between, `verify` finds the runner that differs."""

import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tomlkit.items import Table

from remuda.lib.clock import Clock, SystemClock
from remuda.manager.config.file import ConfigFile
from remuda.manager.config.values import short_token
from remuda.manager.errors import ConfigError, RegisterError
from remuda.manager.registration.register import times_of
from remuda.manager.registration.server_calls import open_client, refusal
from remuda.manager.registration.system_id import find_system_id
from remuda.wire.runner_api import RunnerCredentials
from remuda.wire.runner_client import RunnerClient, RunnerReply

_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
GONE = (401, 403, 404)
"""Statuses of a server that does not know a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selects runners of the file: with `all`, or without name and token, all; else those with all given values."""

    name: str = ""
    token: str = ""
    url: str = ""
    all: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.name or self.token or self.all)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerEntry:
    name: str
    url: str
    token: str
    """The whole token; show `short` instead."""
    executor: str
    id: int

    @property
    def short(self) -> str:
        return short_token(self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Whether a server knows a runner; if not, `problem` says why."""

    runner: RunnerEntry
    is_known: bool
    problem: str = ""


def select_entries(file: ConfigFile, selection: Selection) -> list[Table]:
    """Return matching `[[runners]]` sections; an empty selection matches all. Raises RegisterError if none match."""
    selects_all = selection.is_empty or selection.all
    entries = [entry for entry in file.runners if selects_all or _matches(entry, selection)]
    if not entries:
        what = selection.name or (f"token {short_token(selection.token)}" if selection.token else "")
        raise RegisterError(
            f"{file.path}: there is no runner {what}".rstrip() + "; remuda manager list shows those that are there"
        )
    return entries


def list_runners(path: Path) -> list[RunnerEntry]:
    return [_read_entry(entry) for entry in ConfigFile.read(path).runners]


async def verify(
    path: Path, selection: Selection, *, delete: bool = False, clock: Clock | None = None
) -> list[Verification]:
    """Ask the servers whether they know the selected runners, and return the answers. With `delete`, runners whose
    token the server does not know (a status in GONE) are removed from the file."""
    file, results = ConfigFile.read(path), []
    gone = []
    for entry in select_entries(file, selection):
        async with _client(entry, path, clock or SystemClock()) as client:
            reply = await client.verify()
        is_known = reply.status == 200
        problem = "" if is_known else str(refusal(str(entry.get("url")), reply))
        results.append(Verification(runner=_read_entry(entry), is_known=is_known, problem=problem))
        if reply.status in GONE:
            gone.append(entry)
    if delete and gone:
        with ConfigFile.edit(path) as current:
            current.remove([same for entry in gone for same in current.same_as(entry)])
    return results


async def unregister(path: Path, selection: Selection, *, clock: Clock | None = None) -> list[RunnerEntry]:
    """Remove the selected runners from their servers and from the file, and return them. A runner that its server does
    not know is removed from the file, too. Stops with RegisterError at the first runner whose server refuses."""
    file, done = ConfigFile.read(path), []
    for entry in select_entries(file, selection):
        async with _client(entry, path, clock or SystemClock()) as client:
            reply = await client.unregister()
        if reply.status not in (204, *GONE):
            raise refusal(str(entry.get("url")), reply)
        done.append(_read_entry(entry))
        with ConfigFile.edit(path) as current:
            current.remove(current.same_as(entry))
    return done


async def reset_tokens(
    path: Path, selection: Selection, *, personal: str = "", clock: Clock | None = None
) -> list[RunnerEntry]:
    """Let the servers create new tokens for the selected runners, and write the tokens to the file. Returns these
    runners. `personal` is a user's access token, needed for a runner whose own token has expired."""
    clock = clock or SystemClock()
    file, done = ConfigFile.read(path), []
    for entry in select_entries(file, selection):
        if problem := unwritable_reason(file, entry):
            raise RegisterError(f"{file.path}: {problem}")
        if personal and not entry.get("id"):
            raise RegisterError(f"{file.path}: runner {entry.get('name')} has no id, which is needed with --pat")
        async with _client(entry, path, clock) as client:
            reply = await client.reset_token(runner_id=int(entry.get("id") or 0), personal=personal)
        _write_token(file, entry, _credentials(entry, reply), clock)
        done.append(_read_entry(entry))
    return done


def unwritable_reason(file: ConfigFile, entry: Table) -> str:
    """Return why a new token cannot be written; empty if it can. Checked before the server is asked for a new token,
    which makes the old one invalid."""
    if "$" in str(entry.get("token", "")):
        return (
            f"runner {entry.get('name', '')}: its token comes from the environment, which cannot be changed here; "
            "create a new token on the server, and set the variable to it"
        )
    return "" if file.is_writable else "the file cannot be written, so a new token would be lost"


def _write_token(file: ConfigFile, entry: Table, credentials: RunnerCredentials, clock: Clock) -> None:
    """Write a new token to the section `entry` of the file, which is read again, because it may have changed meanwhile.
    If it is unreadable now, the earlier content (`file`) is written back with the token, so that it is not lost."""
    values = {"token": credentials.token} | times_of(credentials, clock)
    try:
        with ConfigFile.edit(file.path) as current:
            for same in current.same_as(entry):
                same.update(values)
    except ConfigError:
        entry.update(values)
        file.write()
    else:
        entry.update(values)


def _credentials(entry: Table, reply: RunnerReply) -> RunnerCredentials:
    if reply.credentials is not None:
        return reply.credentials
    causes = {404: "the server cannot reset tokens, or has no such runner"}
    causes |= dict.fromkeys((401, 403), "the token is not valid there (any more); create a runner there, or give --pat")
    raise refusal(str(entry.get("url")), reply, causes)


@asynccontextmanager
async def _client(entry: Table, path: Path, clock: Clock) -> AsyncIterator[RunnerClient]:
    values: dict[str, Any] = {key: expand(value) if isinstance(value, str) else value for key, value in entry.items()}
    own_id = find_system_id(path.parent)
    async with open_client(
        url=str(values.get("url", "")),
        token=str(values.get("token", "")),
        system_id=own_id,
        executor=str(values.get("executor", "")),
        clock=clock,
        keys=values,
        beside=path.parent,
    ) as client:
        yield client


def expand(text: str) -> str:
    """Replace `$NAME` and `${NAME}` by the values of environment variables; variables that are not set stay."""
    return _REFERENCE.sub(lambda match: os.environ.get(match[1], match[0]), text)


def _read_entry(entry: Table) -> RunnerEntry:
    return RunnerEntry(
        name=str(entry.get("name", "")),
        url=str(entry.get("url", "")),
        token=expand(str(entry.get("token", ""))),
        executor=str(entry.get("executor", "")),
        id=int(entry.get("id") or 0),
    )


def _matches(entry: Table, selection: Selection) -> bool:
    fields: Sequence[tuple[str, str]] = (("name", selection.name), ("token", selection.token), ("url", selection.url))
    return all(not value or expand(str(entry.get(key, ""))).rstrip("/") == value.rstrip("/") for key, value in fields)
