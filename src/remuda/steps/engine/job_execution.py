"""Runs one job, from its stored request to its stored end.

The loop is the same for a new job and after a crash: rebuild the tree of steps from the journal, ask `sequence` for the
next action, do it and store it. Every action may be repeated, so the agent may die at any point. `Job.listeners` are
called without arguments whenever log, results or state of the job may have changed."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from remuda.lib.killpoints import reach
from remuda.steps.delegation.tree import read_context
from remuda.steps.engine import hold
from remuda.steps.engine.client_presence import ClientPresence
from remuda.steps.engine.job_footprint import JobFootprint
from remuda.steps.engine.job_hold import JobHold
from remuda.steps.engine.job_request import read_facts, secrets_of
from remuda.steps.engine.job_state import JobState
from remuda.steps.engine.process_execution import AgentContext
from remuda.steps.engine.root_definition import enter_root, finish_root
from remuda.steps.engine.step_execution import StepExecutor
from remuda.steps.engine.step_loop import StepLoop
from remuda.steps.errors import AgentError, DamagedError, DefinitionError
from remuda.steps.job_files.disk import describe_error
from remuda.steps.job_files.disk_usage import DiskUse, explain_stop
from remuda.steps.job_files.job_usage import folder_size
from remuda.steps.job_files.journal import JobEnd, Journal, without_large
from remuda.steps.job_files.log import JOB, LogFile
from remuda.steps.job_tree import replay, sequence
from remuda.steps.job_tree.outcome import Cause, Fault, Kind, Outcome, failure, system_failure
from remuda.steps.job_tree.tree import Node, Tree, is_confined
from remuda.steps.language.reading import read_step
from remuda.steps.policy.enforcement import PolicyEnforcement
from remuda.steps.policy.rules import find_insertions
from remuda.steps.process import leftovers
from remuda.steps.process.job_processes import describe_survivors
from remuda.wire.proto.agent_pb2 import StartRequest

UNWANTED = "unwanted"
"""A file of this name in a job's folder means: remove the job as soon as all its environments are closed."""
NOTIFY_SECONDS = 0.05
"""Delay before listeners are notified, so that several changes cause one notification."""

logger = logging.getLogger(__name__)


class OpenShell(Protocol):
    """A shell or other command that a user runs in the job's environment, for debugging."""

    def hang_up(self) -> None:
        """Send SIGHUP to the command, without waiting for its end."""

    async def end(self, reason: str) -> None:
        """End the command, and wait a limited time for its end. `reason` is shown to the user."""


class Job:
    def __init__(self, journal: Journal, context: AgentContext, others: Callable[[], Iterable["Job"]] = tuple) -> None:
        """`others` returns all jobs of the agent, this one included."""
        self.journal = journal
        self.listeners: set[Callable[[], None]] = set()
        self.closed = False
        self._context = context
        self._was_found = bool(journal.past)
        self._request = StartRequest()
        self.footprint = JobFootprint(
            journal,
            context,
            request=lambda: self._request,
            others=lambda: (job.footprint for job in others() if job is not self),
            report_survivors=self._report_survivors,
        )
        self._notification: asyncio.TimerHandle | None = None
        self._executor: StepExecutor | None = None
        self._work_dir_bytes: int | None = None
        self._is_killed = False
        self._has_filled_disk = False
        self.shells: set[OpenShell] = set()
        self.hold = JobHold(journal, context)
        request = self._read_request()
        self.id = request.id
        self.presence = ClientPresence(request.patience_seconds, context.clock.monotonic())
        if journal.end is None or self.hold.is_active:
            self._request = request
        self.log = LogFile(
            journal.folder,
            secrets=secrets_of(self._request),
            limit_bytes=request.log_limit_bytes,
            clock=context.clock,
            waiting_limit_bytes=request.log_waiting_limit_bytes,
        )
        if self.log.damage:
            journal.record_damage(self.log.damage)
        if journal.damage:
            logger.error(
                "job %s: its files in %s are damaged, its steps are not continued: %s",
                self.id,
                journal.folder,
                journal.damage,
            )

    def _read_request(self) -> StartRequest:
        """Read the stored request. If it is damaged, return one with only the id, enough to end the job and report the
        damage. If the id is lost, too, no client can ask for the job, so it is marked for removal."""
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

    def entrance(self, enforcement: PolicyEnforcement) -> hold.Entrance | None:
        """Return where a user's shell would run; None if the job has not begun, was killed, or has ended and is not
        kept for debugging. Raises AgentError if no shell can be opened now."""
        if self._is_killed:
            return None
        if self._executor is not None:
            tree, facts = self._executor.state.tree, self._executor.state.facts
            way = hold.way_now(tree, self.journal, is_inside=facts.is_inside)
            return hold.entrance(facts, way, tree.exports)
        return self.hold.entrance(enforcement)

    def confirm(self, log_offset: int) -> None:
        """Record that a client has stored all log bytes before `log_offset`; steps that waited for it continue."""
        if not self.closed:
            self.log.confirm(log_offset)
            if self._executor is not None:
                self._executor.commands.resume_output()

    def cancel(self) -> None:
        """Cancel the job: end its running steps. Steps with `always()` still run. Idempotent."""
        if self.end is None and not self.journal.cancelled:
            self.journal.record_cancel()
            if self._executor is not None:
                self._executor.cancel()
            else:
                self.journal.past.append({"event": "cancel"})

    @property
    def must_be_closed(self) -> bool:
        """True if the job must not be killed, because its cleanup steps have to run first: it has failed and is kept
        for debugging, or the platform has opened an environment for it that takes time to close (`close_seconds`)."""
        if self._executor is None or self.end is not None:
            return self.hold.is_active
        return any(
            node.call.origin != "user" and node.entered.inputs.get("close_seconds")
            for node in self._executor.state.tree.open.values()
        )

    @property
    def is_unwanted(self) -> bool:
        return (self.journal.folder / UNWANTED).exists()

    def leave(self) -> None:
        """Cancel the job, stop keeping it for debugging, and have it removed when its cleanup steps have run."""
        (self.journal.folder / UNWANTED).touch()
        self.cancel()
        self.hold.release()

    def kill(self) -> None:
        """Kill all steps and let none start. `footprint.kill_rest` kills processes that left the steps' sessions."""
        self._is_killed = True
        self._end_shells()
        if self._executor is not None:
            self._executor.commands.kill()
        self.footprint.kill()

    @property
    def can_be_stopped_for_disk(self) -> bool:
        """True if the job runs and its steps were not ended for a full disk before. This is done only once, so that the
        cleanup steps, which may free space, can run to their end."""
        return self._executor is not None and not self._has_filled_disk

    async def stop_for_disk(self, use: DiskUse, release: Callable[[], object]) -> None:
        """End the running steps of a job that has filled the disk; steps with `always()` still run. `use`: what the job
        has written, for the message. `release` frees disk space for storing that message; it is called when no process
        of the job runs any more."""
        self._has_filled_disk = True
        executor = self._executor
        if executor is None:
            return
        logger.warning("job %s has filled the disk: killing its running steps", self.id)
        with executor.commands.start_nothing():
            record_reason = executor.commands.kill_for(Cause.LIMIT, explain_stop(use))
            leftovers.kill(self.journal.leftovers)
            # Descendants of a step become the agent's children only when everything between them is dead.
            await leftovers.end(self.footprint.find_processes(everywhere=True))
            release()
            record_reason()

    def destroy(self) -> None:
        """Remove the files of a job that has ended or was killed. `run` must have returned before."""
        self._end_shells()
        self.log.shut()
        self.journal.remove()
        self.closed = True
        self._notify()

    async def run(self) -> None:
        """Run the job to its end. An error of the agent ends only this job, with a system failure."""
        try:
            if self.journal.damage and self.end is None:
                await self._break(f"the agent's files of this job are damaged: {self.journal.damage}")
                return
            if self.journal.is_foreign:
                await self._break("another version of the agent began this job, and this version cannot continue it")
                return
            await (self._hold() if self.hold.is_active else self._run())
        except DefinitionError as error:
            await self._break(f"this agent cannot read the job's steps: {error}")
        except AgentError as error:
            await self._break(str(error))
        except OSError as error:
            logger.warning(
                "job %s: cannot read or write its files in the data folder; the job fails: %s", self.id, error
            )
            await self._break(f"the agent cannot use its data folder: {describe_error(error, self.journal.folder)}")
        except Exception as error:
            logger.exception("job %s: unexpected error of the agent, ending the job with a system failure", self.id)
            await self._break(f"the agent failed: {type(error).__name__}")

    async def _run(self) -> None:
        """Run the job's steps and store the outcome; keep a failed job's environments if the request asks for it."""
        request, journal = self._request, self.journal
        enforcement = await self.footprint.load_enforcement()
        executor = self._executor = self._make_executor(request, enforcement)
        request = self._request
        self.log.open(JOB, *request.banner)
        if (remark := enforcement.remark()) and not self._was_found:
            self.log.say(f"WARNING: {remark}")
        for node in executor.state.tree.open.values():
            executor.state.open_section(node)
        try:
            outcome = enter_root(executor.state)
            if outcome is None:
                outcome = await StepLoop(executor, job_id=self.id, notify=self._notify_soon).run()
                outcome = await finish_root(executor.state, outcome)
        finally:
            executor.commands.workers.dismiss()
        await executor.state.wait_for_space()
        self._work_dir_bytes = await asyncio.to_thread(folder_size, Path(request.work_dir))
        journal.account.count_whole(enforcement.usage())
        if request.hold_failed_seconds and outcome.status is sequence.Status.FAILURE:
            hold.note_exports(journal.folder, executor.state.tree.exports)
            held_until = self._context.clock.now() + request.hold_failed_seconds
            await executor.state.write(partial(self._finish, outcome, held_until=held_until))
            self._executor = None
            await self._hold()
            return
        self._executor = None
        self._end_shells()
        await self.footprint.end_processes(enforcement.sweep)
        # Cleanup steps may have been postponed for a failure that was allowed, or before the job was cancelled.
        if request.hold_failed_seconds:
            await self.hold.close(enforcement, self.id)
        await executor.state.write(partial(self._finish, outcome))

    def _make_executor(self, request: StartRequest, enforcement: PolicyEnforcement) -> StepExecutor:
        """Return the executor of the steps, rebuilt from request and journal. Frees memory of large request parts."""
        journal = self.journal
        has_begun = any(event["event"] == "enter" for event in journal.past)
        enforcement.prepare(has_begun=has_begun)
        step = read_step(request.steps, file="steps", job=True)
        facts = read_facts(
            request,
            journal,
            enforcement,
            self._context.base_env,
            is_inside=is_confined(step),
            has_begun=has_begun,
        )
        tree = Tree(
            step,
            work_dir=request.work_dir,
            around=find_insertions(enforcement.policy),
            insertable=enforcement.insertable(),
            context=read_context(request.steps),
        )
        self._request = without_large(request)
        for event in journal.past:
            replay.apply(tree, facts, event)
        journal.past.clear()
        self._context.drains.adopt(journal.leftovers)
        self.log.keep(tree.open)
        state = JobState(
            tree=tree, facts=facts, journal=journal, log=self.log, context=self._context, enforcement=enforcement
        )
        state.mask(tree.masks)
        return StepExecutor(
            state,
            notify=self._notify_soon,
            end_shells=self._wait_for_shells,
            end_processes=partial(self.footprint.end_processes, enforcement.end_processes),
        )

    def _report_survivors(self, survivors: Sequence[str]) -> None:
        if survivors:
            logger.warning(
                "job %s: processes do not end after SIGKILL and are left on the machine: %s",
                self.id,
                ", ".join(survivors),
            )
            self._store_or_keep(partial(self.log.say, describe_survivors(survivors)))

    def _end_shells(self) -> None:
        for shell in tuple(self.shells):
            shell.hang_up()

    async def _wait_for_shells(self, reason: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            for shell in self.shells:
                tasks.create_task(shell.end(reason), name=f"job {self.id}: end a shell")

    async def _hold(self) -> None:
        """Keep the environments for debugging until the hold is over, then run the postponed cleanup steps."""
        reach("agent.held")
        if self.is_unwanted:
            self.hold.release()
        await self.hold.wait(self.id)
        enforcement = await self.footprint.load_enforcement()
        self._end_shells()
        await self.footprint.end_processes(enforcement.sweep)
        await self.hold.close(enforcement, self.id)
        self.journal.remove_exchange()
        self.journal.record_release()
        self._request = StartRequest()
        self.hold.has_ended.set()

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
        self._notify()

    async def _break(self, error: str) -> None:
        """End the job with a system failure, even if its files are not writable; if it has ended, only end its hold."""
        outcome = system_failure(self.log.secrets.mask(error))
        if self.end is not None:  # it was on hold
            logger.warning("failed job %s is no longer kept for debugging because of an error: %s", self.id, error)
            self._store_or_keep(self.journal.record_release)
            self.hold.has_ended.set()
            return
        try:
            self.kill()
            await self.footprint.kill_rest()
        except Exception:
            logger.exception("job %s: cannot kill its processes, ending the job without that", self.id)
        # The innermost steps began last, and are closed first.
        for node in reversed(list(self._executor.state.tree.open.values()) if self._executor else []):
            self._store_or_keep(partial(self._end_open, node, error))
        self._store_or_keep(partial(self._finish, outcome))

    def _end_open(self, node: Node, error: str) -> None:
        if self._executor is not None and node.serial in self._executor.state.tree.open:
            self._executor.state.finish(node, failure(error, Kind.SYSTEM, fault=Fault.RUNNER), is_last=True)

    def _store_or_keep(self, act: Callable[[], None]) -> None:
        """Call `act`, which writes to journal or log. If it fails, keep both in memory from now on and repeat `act`."""
        try:
            act()
            return
        except OSError as refused:
            logger.warning("job %s: cannot write to its log or journal, keeping both in memory: %s", self.id, refused)
        except Exception:
            logger.exception("job %s: cannot write to its log or journal, keeping both in memory", self.id)
        self.log.leave_disk()
        self.journal.leave_disk()
        try:
            act()
        except Exception:
            logger.exception(
                "job %s: cannot write to its log or journal, not even to the copies in memory that replace the files; "
                "a log line, a step result or the job's end may be missing at the server",
                self.id,
            )

    def _end_with(self, outcome: Outcome) -> JobEnd:
        used = self.journal.account.total(self._work_dir_bytes)
        self.journal.record_used(used, self._context.clock.now())
        return JobEnd(
            used=used,
            outcome=outcome,
            ended_at=self._context.clock.now(),
            log_bytes=self.log.mark.length,
            log_checksum=f"crc32:{self.log.mark.checksum:08x}",
            results=len(self.journal.results),
        )

    def _notify_soon(self) -> None:
        """Notify client streams after a short delay, so that start and end of a short step are sent together."""
        if self._notification is None and self.listeners:
            self._notification = asyncio.get_running_loop().call_later(NOTIFY_SECONDS, self._notify)

    def _notify(self) -> None:
        if self._notification is not None:
            self._notification.cancel()
            self._notification = None
        for listener in tuple(self.listeners):
            listener()
