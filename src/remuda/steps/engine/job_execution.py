"""One job from its stored request to its stored end.

The loop is the same for a new job and for one found after a crash: the journal's events make the tree, `plan` says what
follows, that is done and stored. Everything it does may be done again, so it may die on any line; `journal`, `logfile`
and `shim` make the repetition harmless. It decides nothing about order, conditions or limits.

Whoever wants to know about progress adds a listener; a call means only "look again".
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol

from remuda.lib.clock import Clock
from remuda.lib.killpoints import reach
from remuda.lib.waiting import LightEvent, happens, happens_by, one_error
from remuda.steps.delegation.tree import read_context
from remuda.steps.engine import hold
from remuda.steps.engine.client_presence import Attention
from remuda.steps.engine.job_request import closing_command, read_custody, read_facts, secrets_of
from remuda.steps.engine.process_execution import Surroundings, kill_unattended
from remuda.steps.engine.step_execution import Carrier
from remuda.steps.errors import AgentError, DamagedError, DefinitionError
from remuda.steps.job_files.disk import cause_of
from remuda.steps.job_files.disk_usage import DiskSearch, DiskUse, explain_stop
from remuda.steps.job_files.job_usage import folder_size
from remuda.steps.job_files.journal import JobEnd, Journal, without_large
from remuda.steps.job_files.log import JOB, LogFile
from remuda.steps.job_tree import replay, sequence
from remuda.steps.job_tree.evaluation import condition_holds
from remuda.steps.job_tree.outcome import SKIPPED, Cause, Fault, Kind, Outcome, broken, failure
from remuda.steps.job_tree.sequence import End, Enter, Run, Settle, Skip, Stop, Wait
from remuda.steps.job_tree.tree import Node, Tree, is_confined
from remuda.steps.language.reading import read_step
from remuda.steps.policy.enforcement import Custody
from remuda.steps.policy.job_user import Person, parse_run_as
from remuda.steps.process import leftovers
from remuda.steps.process.job_processes import Processes, warning_about
from remuda.wire.proto.agent_pb2 import StartRequest

UNWANTED = "unwanted"
"""A file in the folder of a job that was closed while something had to be closed elsewhere."""
TELL_SECONDS = 0.05
"""How long something that happened may wait for company before clients are told."""

logger = logging.getLogger(__name__)


class OpenShell(Protocol):
    """What somebody runs who looks into a job."""

    def hang_up(self) -> None:
        """Send it a hang-up signal, without waiting for its end."""

    async def end(self, reason: str) -> None:
        """Return when nothing of it runs any more; `reason` is for whoever opened it."""


class Job:
    """A job the agent keeps, running or ended."""

    def __init__(self, journal: Journal, around: Surroundings, others: Callable[[], Iterable["Job"]] = tuple) -> None:
        """`others` returns all jobs of the agent."""
        self.journal = journal
        self._others = others
        self.listeners: set[Callable[[], None]] = set()
        self.closed = False
        self.confirmed = (0, 0)
        """What a client says is safe elsewhere: log offset, result number."""
        self._around = around
        self._was_found = bool(journal.past)
        self._stored_at = journal.read_storage_time()
        self._known_since = around.clock.monotonic()
        self._wake = LightEvent()
        self._telling: asyncio.TimerHandle | None = None
        self._carrier: Carrier | None = None
        self._work_dir_bytes: int | None = None
        self._is_killed = False
        self._has_filled_disk = False
        self._person: Person | None = None
        self.shells: set[OpenShell] = set()
        self._unwanted = LightEvent()
        """Nobody needs what is held."""
        self.let_go = LightEvent()
        """What was held is gone."""
        request = self._read_request()
        self.id = request.id
        self.attention = Attention(request.patience_seconds, around.clock.monotonic())
        self._request = request if journal.end is None or self.is_held else StartRequest()
        self.log = LogFile(
            journal.folder,
            secrets=secrets_of(self._request),
            limit_bytes=request.log_limit_bytes,
            clock=around.clock,
            waiting_limit_bytes=request.log_waiting_limit_bytes,
        )
        if self.log.damage:
            journal.record_damage(self.log.damage)
        if journal.damage:
            logger.error("job %s: its files in %s are damaged: %s", self.id, journal.folder, journal.damage)

    def _read_request(self) -> StartRequest:
        """Where it cannot be read: as much as is needed to end the job and to tell that. Where not even its id is
        known, nobody can ask for it."""
        try:
            return self.journal.read_request()
        except DamagedError as error:
            self.journal.record_damage(str(error))
        if not self.journal.id:
            (self.journal.folder / UNWANTED).touch()
        return StartRequest(id=self.journal.id or self.journal.folder.name)

    @property
    def end(self) -> JobEnd | None:
        return self.journal.end

    @property
    def is_held(self) -> bool:
        """Whether it is over, but its environments are there."""
        return self.end is not None and self.end.held_until > 0 and not self.journal.is_released

    @property
    def held_seconds(self) -> int:
        """For how long they will be."""
        if self.end is None or not self.is_held:
            return 0
        return max(1, round(self.end.held_until - self._around.clock.now()))

    def release(self) -> None:
        """Do not hold the job any longer."""
        self._unwanted.set()

    def entrance(self, custody: Custody) -> hold.Entrance | None:
        """How to get into the job; None when it has not begun, or is over. AgentError when there is no way now."""
        if self._is_killed:
            return None
        if self._carrier is not None:
            tree, facts = self._carrier.tree, self._carrier.facts
            way = hold.way_now(tree, self.journal, is_inside=facts.is_inside)
            return hold.entrance(facts, way, tree.exports)
        if not self.is_held or self._unwanted.is_set():
            return None
        folder, request = self.journal.folder, self.journal.read_request()
        is_inside = is_confined(read_step(request.steps, file="steps", job=True))
        facts = read_facts(request, self.journal, custody, self._around.base_env, is_inside=is_inside, has_begun=True)
        way = hold.way_held(folder, is_inside=is_inside)
        return hold.entrance(facts, way, hold.exports_held(folder))

    def confirm(self, log_offset: int, result_seq: int) -> None:
        """So much is safe elsewhere."""
        self.confirmed = max(log_offset, self.confirmed[0]), max(result_seq, self.confirmed[1])
        if not self.closed:
            self.log.confirm(log_offset)
            if self._carrier is not None:
                self._carrier.go_on()

    def cancel(self) -> None:
        """The running steps end, what always runs still does. Asking again changes nothing."""
        if self.end is None and not self.journal.cancelled:
            self.journal.record_cancel()
            if self._carrier is not None:
                self._carrier.tree.stop(self._carrier.tree.root, Cause.CANCEL)
                self._carrier.look_again()
            else:
                self.journal.past.append({"event": "cancel"})
            self._wake.set()

    @property
    def must_be_closed(self) -> bool:
        """Whether something is open that stays when it is not closed, because it is not on this machine."""
        if self._carrier is None or self.end is not None:
            return self.is_held
        return any(
            one.call.origin != "user" and one.entered.inputs.get("close_seconds")
            for one in self._carrier.tree.open.values()
        )

    @property
    def is_unwanted(self) -> bool:
        """Whether nobody wants to know how it ends."""
        return (self.journal.folder / UNWANTED).exists()

    def leave(self) -> None:
        """Cancel it, and forget it when everything is closed."""
        (self.journal.folder / UNWANTED).touch()
        self.cancel()
        self.release()

    def kill(self) -> None:
        """Kill what its steps run, and let no other begin. What has got away from them is for `kill_rest`."""
        self._is_killed = True
        self._end_shells()
        if self._carrier is not None:
            self._carrier.kill()
        for path in self.journal.folder.glob("step-*.pid"):
            if (serial := path.stem.partition("-")[2]).isdecimal():
                kill_unattended(self.journal.step_files(int(serial)), self._around)
        leftovers.kill(self.journal.leftovers)

    async def kill_rest(self) -> None:
        """All of this machine has to be looked at; nothing of the job goes on when this ends."""
        survivors = await leftovers.end(self._processes(everywhere=True))
        if self._request.policy or self._request.run_as or self._request.cgroup:
            survivors += await (await self.custody()).sweep(self._around.clock)
        self._tell_survivors(survivors)

    async def search_disk(self, processes: Collection[int]) -> DiskSearch:
        """Where to look for what it has put on a disk since it began. `processes` are those of the job."""
        custody = await self.custody()
        work_dir = self._request.work_dir
        ended = self.journal.account.total().get("disk_written_bytes", 0)
        return DiskSearch(
            paths=chain((work_dir, f"{work_dir}.tmp", self.journal.folder), custody.files_in_shared_places()),
            since=self._find_beginning(),
            processes=processes,
            written=int(max(ended, custody.usage().get("io_write_bytes", 0))),
        )

    def _find_beginning(self) -> float:
        """No file of the job has an earlier time. Where the wall clock was set back since this agent knows the job,
        that is the time that the clock as it is now would have shown then."""
        clock = self._around.clock
        return min(self._stored_at, clock.wall() - (clock.monotonic() - self._known_since))

    @property
    def can_be_stopped_for_disk(self) -> bool:
        """Once: what runs after that may be what tidies up."""
        return self._carrier is not None and not self._has_filled_disk

    async def stop_for_disk(self, use: DiskUse, release: Callable[[], object]) -> None:
        """The job has filled the disk: its running steps fail, and what always runs still does. `release` gives the
        room for writing that down, once nothing of the job writes any more."""
        self._has_filled_disk = True
        carrier = self._carrier
        if carrier is None:
            return
        logger.warning("job %s has filled the disk; its running steps are ended", self.id)
        with carrier.start_nothing():
            record_reason = carrier.kill_for(Cause.LIMIT, explain_stop(use))
            leftovers.kill(self.journal.leftovers)
            # What a step has started is not the agent's child before all between them are dead.
            await leftovers.end(self._processes(everywhere=True))
            release()
            record_reason()

    def destroy(self) -> None:
        """Remove every trace of a job that is over, or that was killed: its task has ended."""
        self._end_shells()
        self.log.shut()
        self.journal.remove()
        self.closed = True
        self._tell()

    async def run(self) -> None:
        """Carry the job to its end. Whatever goes wrong here ends the job, never the agent."""
        try:
            if self.journal.damage and self.end is None:
                await self._break(f"the agent's files of this job are damaged: {self.journal.damage}")
                return
            if self.journal.is_foreign:
                await self._break("another version of the agent began this job, and this one cannot go on with it")
                return
            await (self._hold() if self.is_held else self._run())
        except DefinitionError as error:
            await self._break(f"this agent cannot read the job's steps: {error}")
        except AgentError as error:
            await self._break(str(error))
        except OSError as error:
            logger.warning("job %s: %s", self.id, error)
            await self._break(f"the agent cannot use its data folder: {cause_of(error, self.journal.folder)}")
        except Exception as error:
            logger.exception("job %s", self.id)
            await self._break(f"the agent failed: {type(error).__name__}")

    async def _run(self) -> None:
        request, journal = self._request, self.journal
        custody = await self.custody()
        has_begun = any(event["event"] == "enter" for event in journal.past)
        custody.prepare(has_begun=has_begun)
        step = read_step(request.steps, file="steps", job=True)
        # Some of our own programs work with the agent's rights there, whose variables must not be the job's.
        facts = read_facts(
            request,
            journal,
            custody,
            self._around.base_env,
            is_inside=is_confined(step),
            has_begun=has_begun,
        )
        tree = Tree(
            step,
            work_dir=request.work_dir,
            around=custody.around_job(),
            insertable=custody.insertable(),
            context=read_context(request.steps),
        )
        request = self._request = without_large(request)
        for event in journal.past:
            replay.apply(tree, facts, event)
        journal.past.clear()
        self._around.drains.adopt(journal.leftovers)
        self.log.keep(tree.open)
        carrier = Carrier(
            tree,
            facts,
            journal,
            self.log,
            self._around,
            custody,
            tell=self._tell_soon,
            end_shells=self._wait_for_shells,
            end_processes=partial(self._end_processes, custody.end_processes),
        )
        carrier.mask(tree.masks)
        self._carrier = carrier
        self.log.open(JOB, *request.banner)
        if (remark := custody.remark()) and not self._was_found:
            self.log.say(f"WARNING: {remark}")
        for node in tree.open.values():
            carrier.show(node)
        try:
            outcome = await self._carry(carrier)
        finally:
            carrier.leaders.dismiss()
        await carrier.wait_for_room()
        self._work_dir_bytes = await asyncio.to_thread(folder_size, Path(request.work_dir))
        journal.account.count_whole(custody.usage())
        if request.hold_failed_seconds and outcome.status is sequence.Status.FAILURE:
            hold.note_exports(journal.folder, tree.exports)
            self._finish(outcome, held_until=self._around.clock.now() + request.hold_failed_seconds)
            self._carrier = None
            await self._hold()
            return
        self._carrier = None
        self._end_shells()
        await self._end_processes(custody.sweep)
        if request.hold_failed_seconds:  # what failed may have been allowed to, or somebody has cancelled the job since
            await self._close_put_off(custody)
        self._finish(outcome)

    async def _end_processes(self, sweep: Callable[[Clock], Awaitable[tuple[str, ...]]]) -> None:
        """End what steps have left running. `sweep` ends those that the job's custody knows."""
        processes = self._processes(everywhere=self._was_found)
        await leftovers.terminate(processes, self._around.clock)
        # What control groups hold cannot flee from them.
        survivors = await sweep(self._around.clock)
        self._tell_survivors(await leftovers.end(processes) or survivors)

    def _processes(self, *, everywhere: bool) -> Processes:
        sessions: dict[int, list[tuple[int, int]]] = {}
        for leftover in self.journal.leftovers:
            sessions.setdefault(leftover.session, []).extend(leftover.processes)
        uid = self.uid
        is_only_user = partial(self._is_only_user, uid)
        return Processes(self.journal.key, sessions, everywhere=everywhere, uid=uid, is_only_user=is_only_user)

    @property
    def uid(self) -> int | None:
        """The user that its steps run as; None before the first one, and where that is the agent's user."""
        return self._person.uid if self._person is not None and self._request.run_as else None

    def _is_only_user(self, uid: int | None) -> bool:
        """True if no other job may have processes of this user. Called in threads."""
        return not any(other is not self and other.may_run_as(uid) for other in tuple(self._others()))

    def may_run_as(self, uid: int | None) -> bool:
        """True if it may have processes of this user. The user of a job that begins is not known yet: it may be any."""
        return bool(self._request.run_as) and self.uid in (uid, None)

    def _tell_survivors(self, survivors: Sequence[str]) -> None:
        if survivors:
            logger.warning("job %s: processes cannot be ended: %s", self.id, ", ".join(survivors))
            self._in_any_case(partial(self.log.say, warning_about(survivors)))

    def _end_shells(self) -> None:
        for shell in tuple(self.shells):
            shell.hang_up()

    async def _wait_for_shells(self, reason: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            for shell in self.shells:
                tasks.create_task(shell.end(reason), name=f"job {self.id}: end a shell")

    async def _hold(self) -> None:
        """Keep everything as it is until nobody needs it any more; then do what was put off."""
        assert self.end is not None
        reach("agent.held")
        if self.is_unwanted:
            self.release()
        await happens_by(
            self._around.clock,
            self._unwanted,
            within_seconds=self.end.held_until - self._around.clock.now(),
            name=f"job {self.id}: hold",
        )
        self._unwanted.set()
        custody = await self.custody()
        self._end_shells()
        await self._end_processes(custody.sweep)
        await self._close_put_off(custody)
        self.journal.remove_exchange()
        self.journal.record_release()
        self._request = StartRequest()
        self.let_go.set()

    async def _close_put_off(self, custody: Custody) -> None:
        for number, closing in enumerate(hold.closings(self.journal.folder)):
            try:
                await hold.close(closing, *closing_command(custody, closing, self.journal.folder, number))
            except (OSError, ValueError) as error:
                logger.warning("job %s: a closing step that was put off cannot be started: %s", self.id, error)
        custody.leave_slot()

    async def custody(self) -> Custody:
        """What holds for its steps, and for whatever runs beside them."""
        request = self._request
        if request.run_as and self._person is None:
            # Whoever keeps the list of users may be far away.
            self._person = await asyncio.to_thread(parse_run_as, request.run_as)
        return read_custody(request, self.journal, self._person if request.run_as else None)

    async def _carry(self, carrier: Carrier) -> Outcome:
        """Do what the plan says until it says that this is the end."""
        tree, facts = carrier.tree, carrier.facts

        def holds(node: Node, level: sequence.Level) -> bool:
            return condition_holds(tree, facts, node, level)

        working: dict[tuple[int, ...], asyncio.Task[None]] = {}
        async with one_error(), asyncio.TaskGroup() as group:
            while True:
                self._tell_soon()
                await carrier.wait_for_room()
                self._wake.clear()
                now = self._around.clock.now()
                until: float | None = None
                did = False
                actions = sequence.next_actions(tree, holds, now=now, job_deadline=facts.deadline)
                for action in actions:
                    match action:
                        case End(outcome):
                            return outcome
                        case Skip(node):
                            carrier.finish(node, SKIPPED)
                            did = True
                        case Settle(node, result):
                            carrier.settle(node, result)
                            did = True
                        case Stop(node, cause):
                            carrier.stop(node, cause)
                            did = True
                        case Wait(moment):
                            until = moment if until is None else min(until, moment)
                        case Enter(node) | Run(node):
                            if len(actions) == 1 and not working:
                                # The usual case, one step after the other, needs no task.
                                await carrier.carry(node)
                                did = True
                            elif (key := tuple(node.key)) not in working:
                                work = carrier.carry(node)
                                task = group.create_task(work, name=f"job {self.id}: {node.path}")
                                working[key] = task
                                task.add_done_callback(partial(self._done, working, key))
                if not did:
                    await happens(self._wake, within_seconds=None if until is None else until - now)

    def _done(
        self, working: dict[tuple[int, ...], asyncio.Task[None]], key: tuple[int, ...], _: asyncio.Task[None]
    ) -> None:
        working.pop(key, None)
        self._wake.set()

    def _finish(self, outcome: Outcome, *, held_until: float = 0.0) -> None:
        outcome = replace(outcome, message=self.log.secrets.mask(outcome.message))
        notes = [self._request.hold_note] if held_until and self._request.hold_note else []
        self.log.close(JOB, *notes, outcome.log_line)
        if not held_until:
            self.journal.remove_exchange()
        self.journal.record_end(replace(self._end_with(outcome), held_until=held_until))
        self.journal.shut()
        if not held_until:
            self._request = StartRequest()
        self._tell()

    async def _break(self, error: str) -> None:
        """End the job although its files may not be writable."""
        outcome = broken(self.log.secrets.mask(error))
        if self.end is not None:  # it was only held
            logger.warning("job %s cannot be held any longer: %s", self.id, error)
            self._in_any_case(self.journal.record_release)
            self.let_go.set()
            return
        try:
            self.kill()
            await self.kill_rest()
        except Exception:
            logger.exception("job %s: what it started cannot be ended", self.id)
        # No step stays open that nobody goes on with; the inner ones began last.
        for node in reversed(list(self._carrier.tree.open.values()) if self._carrier else []):
            self._in_any_case(partial(self._end_open, node, error))
        self._in_any_case(partial(self._finish, outcome))

    def _end_open(self, node: Node, error: str) -> None:
        if self._carrier is not None and node.serial in self._carrier.tree.open:
            self._carrier.finish(node, failure(error, Kind.SYSTEM, fault=Fault.RUNNER), is_last=True)

    def _in_any_case(self, act: Callable[[], None]) -> None:
        """Where what it tells cannot be stored, that is at least known while the agent lives."""
        try:
            act()
            return
        except OSError as refused:
            logger.warning("job %s: its end cannot be stored: %s", self.id, refused)
        except Exception:
            logger.exception("job %s: its end cannot be stored", self.id)
        self.log.leave_disk()
        self.journal.leave_disk()
        try:
            act()
        except Exception:
            logger.exception("job %s: its end cannot be told", self.id)

    def _end_with(self, outcome: Outcome) -> JobEnd:
        used = self.journal.account.total(self._work_dir_bytes)
        self.journal.record_used(used, self._around.clock.now())
        return JobEnd(
            used=used,
            outcome=outcome,
            ended_at=self._around.clock.now(),
            log_bytes=self.log.mark.length,
            log_checksum=f"crc32:{self.log.mark.checksum:08x}",
            results=len(self.journal.results),
        )

    def _tell_soon(self) -> None:
        """A short step begins and ends before anybody is told; then both go out together."""
        if self._telling is None and self.listeners:
            self._telling = asyncio.get_running_loop().call_later(TELL_SECONDS, self._tell)

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        for listener in tuple(self.listeners):
            listener()
