"""Jobs that an agent has and the journal does not: found again after the journal was lost.

Every job is started with a note for its manager that its agent keeps (`owner_note`). Whenever the manager connects to
an agent it asks for the notes of jobs it does not know. A job is taken up when it is ours by its note, and nobody else
watches it; then the server decides whether it still is, see `core/life.py` (Phase.FOUND). Nothing is ever closed at an
agent only because it is not known here: it may be another manager's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Literal

import msgspec

from remuda.manager.environments.port import Environment
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.manager.jobs.journal import JobRow
from remuda.manager.jobs.links import Links
from remuda.manager.scaling.scaling import all_found
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentClient, AgentRefusedError, KeptJob
from remuda.wire.runner_client import read_payload


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager keeps with a job at its agent. No secret of the runner: jobs of the same user may read it."""

    version: Literal[1] = 1
    system_id: str
    row: JobRow
    """Without its payload, which stands behind the note as it came."""


def owner_note(row: JobRow, system_id: str) -> bytes:
    """For `JobStart.owner`."""
    head = Note(system_id=system_id, row=msgspec.structs.replace(row, payload=b""))
    return msgspec.json.encode(head) + b"\n" + row.payload


def read_note(owner: bytes) -> Note | None:
    """None: it is no manager's, or of a kind that this one does not know."""
    head, _, payload = owner.partition(b"\n")
    try:
        note = msgspec.json.decode(head, type=Note)
        read_payload(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return msgspec.structs.replace(note, row=msgspec.structs.replace(note.row, payload=payload))


def is_ours(note: Note, *, system_id: str, runners: Collection[tuple[str, str]]) -> bool:
    """Whether a job belongs to the manager with this id, or to one of these runners (short token and address)."""
    return note.system_id == system_id or (note.row.runner, note.row.url) in runners


async def lost_jobs(
    client: AgentClient,
    machine: str,
    *,
    is_known: Callable[[str], bool],
    is_ours: Callable[[Note], bool],
) -> list[JobRow]:
    """The jobs of an agent that are ours and that nobody knows any more; all others stay as they are."""
    unknown = [key for key in (await client.hello()).jobs if not is_known(key)]
    if not unknown:
        return []
    log = logger("manager").bind(machine=machine)
    found: list[JobRow] = []
    try:
        async for kept in client.jobs(unknown):
            note = read_note(kept.owner)
            if note is not None and not kept.attended and is_ours(note) and note.row.key == kept.id:
                found.append(note.row)
            else:
                log.info("an agent has a job that is not ours", key=kept.id, cause=_why(kept, note))
    except AgentRefusedError as error:
        log.warning("jobs of an earlier manager cannot be looked for", cause=str(error))
    return found


class Searches:
    """Looks at the machines of environments, once for each environment and for as long as somebody uses it.

    Connecting to an agent is looking at it, so this only sees to it that there is a link to each machine once. `start`
    makes a supervised task.
    """

    def __init__(self, links: Links, start: Callable[[str, Callable[[], Awaitable[None]]], asyncio.Task[None]]) -> None:
        self._links = links
        self._start = start
        self._begun: dict[int, tuple[Environment, asyncio.Task[None], float]] = {}
        """With the loop's time of the beginning."""

    def follow(self, environments: Iterable[Environment]) -> None:
        """These are used now: begin with those that are new, and leave off where nobody is any more."""
        used = {id(environment): environment for environment in environments}
        for gone in self._begun.keys() - used.keys():
            self._begun.pop(gone)[1].cancel()
        for key in used.keys() - self._begun.keys():
            work = partial(self._look_through, used[key])
            now = asyncio.get_running_loop().time()
            self._begun[key] = used[key], self._start("finding of jobs", work), now

    async def finished(self, environment: Environment, within_seconds: float) -> None:
        """Returns when every machine of one that may have jobs of an earlier process has been looked at, or so long
        after the search has begun: however often somebody waits, nobody waits for longer, nor for another's machines.
        """
        if begun := self._begun.get(id(environment)):
            _, task, at = begun
            left = at + within_seconds - asyncio.get_running_loop().time()
            if left > 0:
                await asyncio.wait({task}, timeout=left)

    async def _look_through(self, environment: Environment) -> None:
        try:
            machines = await environment.recover()
        except (EnvironmentTemporaryError, EnvironmentLostError) as error:
            logger("manager").error("machines with jobs of an earlier process cannot be looked for", cause=str(error))
            return
        async with asyncio.TaskGroup() as group:
            for machine in machines:
                group.create_task(self._look_at(environment, machine), name=f"finding of jobs on {machine}")
        all_found([environment])

    async def _look_at(self, environment: Environment, machine: str) -> None:
        link = self._links.use(environment, machine)
        try:
            await link.settled.wait()
        finally:
            self._links.let_go(link)


def _why(kept: KeptJob, note: Note | None) -> str:
    if note is None:
        return "it has no note of a manager"
    return "another manager watches it" if kept.attended else "another manager started it"
