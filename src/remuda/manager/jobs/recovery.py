"""Recovers jobs that run at an agent but are missing in the journal, because the journal was lost.

With each job the agent stores data about the manager that started it, its note (`owner_note`). A manager takes over a
job if the note names this manager or one of its runners, and no other manager is connected for the job; the server then
decides whether the job still runs. Other jobs are never deleted at the agent: they may belong to another manager."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Literal

import msgspec

from remuda.manager.core.record import JobRow
from remuda.manager.environments.port import Environment
from remuda.manager.environments.scaled import end_recovery
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.manager.jobs.links import Links
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentClient, AgentRefusedError, KeptJob
from remuda.wire.runner_client import read_payload


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager stores with a job at the agent, to recover it: no token, as jobs of the same user can read it."""

    version: Literal[1] = 1
    system_id: str
    row: JobRow
    """Encoded without its payload, which follows the note unchanged; `read_note` returns it with the payload."""


def owner_note(row: JobRow, system_id: str) -> bytes:
    head = Note(system_id=system_id, row=msgspec.structs.replace(row, payload=b""))
    return msgspec.json.encode(head) + b"\n" + row.payload


def read_note(owner: bytes) -> Note | None:
    """Decode a manager's note about a job. None if it is no such note, has an unknown version or an invalid payload."""
    head, _, payload = owner.partition(b"\n")
    try:
        note = msgspec.json.decode(head, type=Note)
        read_payload(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return msgspec.structs.replace(note, row=msgspec.structs.replace(note.row, payload=payload))


def is_ours(note: Note, *, system_id: str, runners: Collection[tuple[str, str]]) -> bool:
    """True if a job at an agent belongs to this manager: its `note`, which the manager that started the job stored at
    the agent, names this `system_id` or one of `runners` (short token and server URL)."""
    return note.system_id == system_id or (note.row.runner, note.row.url) in runners


async def find_lost_jobs(
    client: AgentClient,
    machine: str,
    *,
    is_known: Callable[[str], bool],
    is_ours: Callable[[Note], bool],
) -> list[JobRow]:
    """Return the jobs at an agent that this manager has lost: no manager watches them, `is_known` is false for their
    key, and `is_ours` true for their note. Changes nothing at the agent. `machine` is for the log."""
    unknown = [key for key in (await client.hello()).jobs if not is_known(key)]
    if not unknown:
        return []
    log = logger("manager").bind(machine=machine)
    rows: list[JobRow] = []
    try:
        async for job in client.jobs(unknown):
            note = read_note(job.owner)
            if note is not None and not job.attended and is_ours(note) and note.row.key == job.id:
                rows.append(note.row)
            else:
                log.info("job at the agent is not this manager's; ignoring it", key=job.id, cause=_why(job, note))
    except AgentRefusedError as error:
        log.warning(
            "agent refused to list its jobs; trying again at the next connection to find jobs that the journal lost",
            cause=str(error),
        )
    return rows


class Searches:
    """Searches all machines of each environment once for lost jobs (they run at an agent and are not in the journal).
    It opens a link to each machine, because new links look for lost jobs. `start` runs a function as a named task."""

    def __init__(self, links: Links, start: Callable[[str, Callable[[], Awaitable[None]]], asyncio.Task[None]]) -> None:
        self._links = links
        self._start = start
        self._started: dict[int, tuple[Environment, asyncio.Task[None], float]] = {}
        """By the id of the environment: the environment, its search, and the event loop's time of the start."""

    def follow(self, environments: Iterable[Environment]) -> None:
        """Start a search for each environment that was not searched before, and cancel searches of all others."""
        used = {id(environment): environment for environment in environments}
        for key in self._started.keys() - used.keys():
            self._started.pop(key)[1].cancel()
        for key in used.keys() - self._started.keys():
            work = partial(self._search, used[key])
            now = asyncio.get_running_loop().time()
            self._started[key] = used[key], self._start("search for jobs", work), now

    async def wait(self, environment: Environment, within_seconds: float) -> None:
        """Wait until all machines of the environment are searched, at most until `within_seconds` after the search
        started."""
        if search := self._started.get(id(environment)):
            _, task, started_at = search
            remaining = started_at + within_seconds - asyncio.get_running_loop().time()
            if remaining > 0:
                await asyncio.wait({task}, timeout=remaining)

    async def _search(self, environment: Environment) -> None:
        try:
            machines = await environment.recover()
        except (EnvironmentTemporaryError, EnvironmentLostError) as error:
            logger("manager").error(
                "cannot list machines to search for lost jobs; a machine is searched when the manager connects to it",
                environment=type(environment).__name__,
                cause=str(error),
            )
            return
        async with asyncio.TaskGroup() as group:
            for machine in machines:
                group.create_task(self._visit(environment, machine), name=f"search for jobs on {machine}")
        end_recovery([environment])

    async def _visit(self, environment: Environment, machine: str) -> None:
        link = self._links.use(environment, machine)
        try:
            await link.settled.wait()
        finally:
            self._links.let_go(link)


def _why(job: KeptJob, note: Note | None) -> str:
    if note is None:
        return "it has no note of a manager"
    if note.row.key != job.id:
        return f"its note is for another job, {note.row.key}"
    return "another manager watches it" if job.attended else "another manager started it"
