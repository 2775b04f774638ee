"""Knows what a job has on the machine: the user that its steps run as, its processes, and its files."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import chain

from remuda.lib.clock import Clock
from remuda.steps.engine.job_request import read_enforcement
from remuda.steps.engine.process_execution import AgentContext, kill_unattended
from remuda.steps.job_files.disk_usage import DiskSearch
from remuda.steps.job_files.job_packages import list_without_packages
from remuda.steps.job_files.journal import Journal
from remuda.steps.policy.enforcement import PolicyEnforcement
from remuda.steps.policy.job_user import JobUser, parse_run_as
from remuda.steps.process import leftovers
from remuda.steps.process.job_processes import JobProcesses
from remuda.wire.proto.agent_pb2 import StartRequest

logger = logging.getLogger(__name__)


class JobFootprint:
    def __init__(
        self,
        journal: Journal,
        context: AgentContext,
        *,
        request: Callable[[], StartRequest],
        others: Callable[[], Iterable["JobFootprint"]],
        report_survivors: Callable[[Sequence[str]], None],
    ) -> None:
        """`request` returns those parts of the job's request that are still in memory, `others` the footprints of the
        agent's other jobs. `report_survivors` gets descriptions of processes that could not be killed."""
        self._request = request
        self._journal = journal
        self._context = context
        self._others = others
        self._report_survivors = report_survivors
        self._was_found = bool(journal.past)
        self._stored_at = journal.read_storage_time()
        self._known_since = context.clock.monotonic()
        self._user: JobUser | None = None

    async def load_enforcement(self) -> PolicyEnforcement:
        request = self._request()
        if request.run_as and self._user is None:
            # The list of users may be on another machine.
            self._user = await asyncio.to_thread(parse_run_as, request.run_as)
        return read_enforcement(request, self._journal, self._user if request.run_as else None)

    @property
    def uid(self) -> int | None:
        """Id of the user that the job's steps run as; None if that is the agent's own user, or not known yet."""
        return self._user.uid if self._user is not None and self._request().run_as else None

    def may_run_as(self, uid: int | None) -> bool:
        """True if the request names a user for the job's steps (`run_as`) whose id is `uid` or not known yet."""
        return bool(self._request().run_as) and self.uid in (uid, None)

    def kill(self) -> None:
        """Kill all steps and let none start any more. `kill_rest` kills processes that left the steps' sessions."""
        for path in self._journal.folder.glob("step-*.pid"):
            if (serial := path.stem.partition("-")[2]).isdecimal():
                kill_unattended(self._journal.step_files(int(serial)), self._context)
        leftovers.kill(self._journal.leftovers)

    async def kill_rest(self) -> None:
        """Kill all processes of the job on the machine. Calls `report_survivors` with those that do not end."""
        survivors = await leftovers.end(self.find_processes(everywhere=True))
        if self._request().policy or self._request().run_as or self._request().cgroup:
            survivors += await (await self.load_enforcement()).sweep(self._context.clock)
        self._report_survivors(survivors)

    async def end_processes(self, sweep: Callable[[Clock], Awaitable[tuple[str, ...]]]) -> None:
        """End the background processes that steps left running: SIGTERM, after a grace period SIGKILL. `sweep` kills
        processes in the job's control groups or of its user, and returns descriptions of those that do not end."""
        processes = self.find_processes(everywhere=self._was_found)
        await leftovers.terminate(processes, self._context.clock)
        survivors = await sweep(self._context.clock)
        self._report_survivors(await leftovers.end(processes) or survivors)

    def find_processes(self, *, everywhere: bool) -> JobProcesses:
        sessions: dict[int, list[tuple[int, int]]] = {}
        for leftover in self._journal.leftovers:
            sessions.setdefault(leftover.session, []).extend(leftover.processes)
        uid = self.uid
        is_only_user = partial(self._is_only_user, uid)
        return JobProcesses(self._journal.key, sessions, everywhere=everywhere, uid=uid, is_only_user=is_only_user)

    def _is_only_user(self, uid: int | None) -> bool:
        """Return True if no other job of the agent may have processes of this user. Called in threads."""
        return not any(other.may_run_as(uid) for other in tuple(self._others()))

    async def search_disk(self, processes: Collection[int]) -> DiskSearch:
        """Return where to search for files that the job has written since it began. `processes`: its process ids."""
        enforcement = await self.load_enforcement()
        work_dir = self._request().work_dir
        ended = self._journal.account.total().get("disk_written_bytes", 0)
        return DiskSearch(
            paths=chain(
                (work_dir, f"{work_dir}.tmp"),
                list_without_packages(self._journal.folder),
                enforcement.files_in_shared_places(),
            ),
            since=self._find_beginning(),
            processes=processes,
            written=int(max(ended, enforcement.usage().get("io_write_bytes", 0))),
        )

    def _find_beginning(self) -> float:
        """Return a time before which the job has changed no file, even if the wall clock was set back since."""
        clock = self._context.clock
        return min(self._stored_at, clock.wall() - (clock.monotonic() - self._known_since))
