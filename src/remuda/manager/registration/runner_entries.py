"""Runners that a configuration file has: which of them are meant, whether their server knows them, removing them, and
new tokens for them.

The server is asked first and the file is written after each runner, so that a crash in between leaves at most one that
the other side does not know: `verify` finds it. The commands of `remuda manager` call this.
"""

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
from remuda.manager.config.load import short_token
from remuda.manager.errors import ConfigError, RegisterError
from remuda.manager.process.system_id import find_system_id
from remuda.manager.registration.register import times_of
from remuda.manager.registration.server_calls import refusal, server
from remuda.wire.runner_api import RunnerCredentials
from remuda.wire.runner_client import RunnerClient, RunnerReply

_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
GONE = (401, 403, 404)
"""Statuses by which a server says that it does not know a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which runners are meant; empty fields do not choose."""

    name: str = ""
    token: str = ""
    url: str = ""
    all: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.name or self.token or self.all)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A runner of the file, as it is shown."""

    name: str
    url: str
    token: str
    """Whole: whoever shows it cuts it, see `short`."""
    executor: str
    id: int

    @property
    def short(self) -> str:
        return short_token(self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a server said of a runner."""

    runner: Known
    is_known: bool
    problem: str = ""


def chosen(file: ConfigFile, wish: Chosen) -> list[Table]:
    """The sections that are meant; RegisterError where there is none."""
    found = [entry for entry in file.runners if wish.is_empty or wish.all or _fits(entry, wish)]
    if not found:
        what = wish.name or (f"token {short_token(wish.token)}" if wish.token else "")
        raise RegisterError(
            f"{file.path}: there is no runner {what}".rstrip() + "; remuda manager list shows those that are there"
        )
    return found


def runners_of(path: Path) -> list[Known]:
    """All runners of a file."""
    return [_known(entry) for entry in ConfigFile.read(path).runners]


async def verify(path: Path, wish: Chosen, *, delete: bool = False, clock: Clock | None = None) -> list[Verified]:
    """Ask the servers whether they know these runners; those that they do not know are taken out with `delete`."""
    file, results = ConfigFile.read(path), []
    gone = []
    for entry in chosen(file, wish):
        async with _client(entry, path, clock or SystemClock()) as client:
            reply = await client.verify()
        is_known = reply.status == 200
        problem = "" if is_known else str(refusal(str(entry.get("url")), reply))
        results.append(Verified(runner=_known(entry), is_known=is_known, problem=problem))
        if reply.status in GONE:
            gone.append(entry)
    if delete and gone:
        with ConfigFile.changed(path) as now:
            now.remove([one for entry in gone for one in now.same_as(entry)])
    return results


async def unregister(path: Path, wish: Chosen, *, clock: Clock | None = None) -> list[Known]:
    """Take runners off their servers and out of the file; one that its server does not know goes too."""
    file, done = ConfigFile.read(path), []
    for entry in chosen(file, wish):
        async with _client(entry, path, clock or SystemClock()) as client:
            reply = await client.unregister()
        if reply.status not in (204, *GONE):
            raise refusal(str(entry.get("url")), reply)
        done.append(_known(entry))
        with ConfigFile.changed(path) as now:
            now.remove(now.same_as(entry))
    return done


async def reset_tokens(path: Path, wish: Chosen, *, personal: str = "", clock: Clock | None = None) -> list[Known]:
    """New tokens for runners, written to the file; `personal` is a person's token, for a runner whose own has ended."""
    clock = clock or SystemClock()
    file, done = ConfigFile.read(path), []
    for entry in chosen(file, wish):
        if problem := unwritable(file, entry):
            raise RegisterError(f"{file.path}: {problem}")
        if personal and not entry.get("id"):
            raise RegisterError(f"{file.path}: {entry.get('name')}: has no id, which is needed with a person's token")
        async with _client(entry, path, clock) as client:
            reply = await client.reset_token(runner_id=int(entry.get("id") or 0), personal=personal)
        _write_token(file, entry, _credentials(entry, reply), clock)
        done.append(_known(entry))
    return done


def unwritable(file: ConfigFile, entry: Table) -> str:
    """Why a new token could not be kept; empty: it can. Asked before the old one ends."""
    if "$" in str(entry.get("token", "")):
        return (
            f"runner {entry.get('name', '')}: its token comes from the environment, where no new one can be put; "
            "make one on the server and put it there"
        )
    return "" if file.is_writable else "the file cannot be written, so a new token would be lost"


def _write_token(file: ConfigFile, entry: Table, credentials: RunnerCredentials, clock: Clock) -> None:
    """Put a runner's new token in place of the old one, in the file as it is by now: the call took its time."""
    values = {"token": credentials.token} | times_of(credentials, clock)
    try:
        with ConfigFile.changed(file.path) as now:
            for found in now.same_as(entry):
                found.update(values)
    except ConfigError:  # somebody's half-made change is lost rather than the only token that counts
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
    values: dict[str, Any] = {key: expanded(value) if isinstance(value, str) else value for key, value in entry.items()}
    own_id = find_system_id(path.parent)
    async with server(
        url=str(values.get("url", "")),
        token=str(values.get("token", "")),
        system_id=own_id,
        executor=str(values.get("executor", "")),
        clock=clock,
        keys=values,
        beside=path.parent,
    ) as client:
        yield client


def expanded(text: str) -> str:
    """With the variables of the environment, as far as they are set."""
    return _REFERENCE.sub(lambda match: os.environ.get(match[1], match[0]), text)


def _known(entry: Table) -> Known:
    return Known(
        name=str(entry.get("name", "")),
        url=str(entry.get("url", "")),
        token=expanded(str(entry.get("token", ""))),
        executor=str(entry.get("executor", "")),
        id=int(entry.get("id") or 0),
    )


def _fits(entry: Table, wish: Chosen) -> bool:
    wanted: Sequence[tuple[str, str]] = (("name", wish.name), ("token", wish.token), ("url", wish.url))
    return all(not value or expanded(str(entry.get(key, ""))).rstrip("/") == value.rstrip("/") for key, value in wanted)
