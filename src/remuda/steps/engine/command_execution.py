"""Executes the command of a step: applies limits, runs the process, decides whether it succeeded, stores the result.

After a crash, the next agent repeats the action that was not stored as done. Every action here allows that."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from remuda.lib.dataclass import dataclass
from remuda.lib.waiting import unwrap_group_error
from remuda.steps.delegation.tree import end_elsewhere, outcome_of, read_returned, translate_result
from remuda.steps.engine import hold, step_results
from remuda.steps.engine.job_state import JobState
from remuda.steps.engine.launching import grace_seconds, is_report_trusted, launch
from remuda.steps.engine.output_files import MOST_MASKS, read_failure, read_masks
from remuda.steps.engine.process_execution import JobCallbacks, ProcessExecution
from remuda.steps.engine.step_outputs import read_step_outputs
from remuda.steps.engine.step_results import StepProduct
from remuda.steps.errors import AgentError, DefinitionError
from remuda.steps.job_files.disk import judge_start_error
from remuda.steps.job_files.log import Output
from remuda.steps.job_tree import replay, sequence
from remuda.steps.job_tree.outcome import Cause, Fault, Finished, Kind, Status, failure
from remuda.steps.job_tree.tree import DELEGATE, Node
from remuda.steps.pack.program import own_command
from remuda.steps.policy.step_limits import Enclosure
from remuda.steps.process import leftovers, shim
from remuda.steps.process.kernel import POLL_SECONDS
from remuda.steps.process.launch import Launch
from remuda.steps.process.step_files import StepFiles
from remuda.steps.process.worker_pool import WorkerPool

LONGEST_UNTRUSTED_TEXT = 256 * 1024
"""Limit for the texts of a result from an agent that the job has chosen."""


@dataclass(slots=True, kw_only=True)
class _Run:
    result: Finished | None = None
    """The result if the exit code does not decide it: the command did not run, or the agent failed."""
    masks: list[str] = field(default_factory=list)
    record: shim.Record | None = None
    is_jobs_doing: bool = False
    worker_waits: bool = False
    usage: dict[str, Any] = field(default_factory=dict)


class CommandExecution:
    def __init__(
        self,
        state: JobState,
        *,
        notify: Callable[[], None],
        end_shells: Callable[[str], Awaitable[None]],
        is_new: Callable[[Node], bool],
    ) -> None:
        """`notify` is called after new log lines or results. `end_shells` ends all open shells of the job and shows
        their users its argument. `is_new`: no earlier agent can have started the step's command."""
        self._state = state
        self._notify = notify
        self._end_shells = end_shells
        self._is_new = is_new
        self._executions: dict[int, ProcessExecution] = {}
        self.workers = WorkerPool(state.context.fork_server)
        self._may_start = asyncio.Event()
        self._may_start.set()
        self._is_held_back = False
        self._returned: dict[int, tuple[int, int]] = {}
        """How far the results file of each delegating step was read (`read_returned`), by the serial of the step."""
        state.on_stop.append(self.look_again)

    def look_again(self) -> None:
        """Have all running commands checked at once: whether their steps must end, and whether there is output."""
        for execution in self._executions.values():
            execution.look_again()

    def resume_output(self) -> None:
        """Continue to read output that was paused for unconfirmed log bytes, if clients have confirmed enough."""
        if self._is_held_back and not self._state.log.holds_back():
            self._is_held_back = False
            self.look_again()

    def kill(self) -> None:
        for execution in self._executions.values():
            execution.kill()

    def kill_for(self, cause: Cause, text: str) -> Callable[[], None]:
        """Kill all running commands of the job at once. Their steps then end with the reason `cause` and the message
        `text`, except those whose command has already ended with exit code 0. Returns a function that stores this
        reason in the journal; the caller calls it later, because the disk may be full now."""
        state = self._state
        nodes = [node for serial, node in state.tree.open.items() if serial in self._executions]
        records = {node: shim.read_record(state.journal.step_files(node.serial)) for node in nodes}
        events = {
            node: replay.stop_event(node, cause, text)
            for node, record in records.items()
            if record is None or record.exit_code != 0
        }
        for event in events.values():
            replay.apply(state.tree, state.facts, event)
        self.kill()

        def record_reason() -> None:
            for node, event in events.items():
                if node.serial in state.tree.open:  # else the reason is in its result
                    state.journal.record(event)
            for callback in state.on_stop:
                callback()

        return record_reason

    @contextmanager
    def start_nothing(self) -> Iterator[None]:
        """Context manager for code that kills all processes of the job: commands start only after the block."""
        self._may_start.clear()
        try:
            yield
        finally:
            self._may_start.set()

    async def execute(self, node: Node) -> None:
        """Run the command of a step, or watch its process if an earlier agent has started it, and store the result."""
        if node.is_inserted:  # it has begun, so no other shell can be opened meanwhile
            await self._end_shells(hold.no_shell_beside(node))
        files = self._state.files_of(node)
        await self._state.write(partial(self._state.open_section, node))
        self._notify()
        await self._may_start.wait()
        enclosure = self._state.enforcement.enclose(node)
        if enclosure.limits_disk:
            enclosure = await asyncio.to_thread(enclosure.since, Path(files.own_path(".disk")))
            await self._may_start.wait()  # again: there is no other await until the step is in `_executions`
        if self._state.log.is_closed(node.serial):
            run = _Run(masks=read_masks(files.masks, 0, rest=True)[0][:MOST_MASKS])
            self._state.mask(run.masks)
        else:
            run = await self._run(node, enclosure, files)
        run.record = run.record or shim.read_record(files)
        result = await self._judge(node, run, enclosure, files)
        await self._state.write(partial(self._finish, node, result, run, enclosure, files))
        enclosure.remove()

    async def _run(self, node: Node, enclosure: Enclosure, files: StepFiles) -> _Run:
        output = Output(self._state.log, node.serial, files.own_path(".raw"))
        execution = ProcessExecution(
            files,
            output,
            self._callbacks_for(node, files),
            self._state.context,
            is_new=self._is_new(node),
            workers=self.workers,
        )
        run = _Run()
        self._executions[node.serial] = execution
        try:
            if refusal := self._state.enforcement.refusal(enclosure):
                run.result = failure(refusal, Kind.POLICY)
            else:
                await self._run_within(node, execution, enclosure, files)
        except DefinitionError as error:
            run.result = failure(str(error), Kind.LOAD)
        except AgentError as error:
            run.result = failure(str(error), Kind.SYSTEM, fault=Fault.RUNNER)
        except OSError as error:
            execution.kill()
            run.result = judge_start_error(error, self._state.journal.folder)
        finally:
            del self._executions[node.serial]
        run.masks, run.record = execution.masks, execution.record
        run.is_jobs_doing, run.worker_waits = execution.is_jobs_doing, execution.worker_waits
        run.usage = execution.usage.to_result() if execution.usage is not None else {}
        if hint := enclosure.hint():
            self._state.warn(hint)
        return run

    async def _run_within(
        self, node: Node, execution: ProcessExecution, enclosure: Enclosure, files: StepFiles
    ) -> None:
        """Run the process. Measure limits that the kernel does not enforce; end the step if it exceeds one."""
        work = execution.run(lambda: self._prepare(node, enclosure, files))
        if not enclosure.is_measured:
            await work
            return
        async with unwrap_group_error(), asyncio.TaskGroup() as tasks:
            measuring = tasks.create_task(self._measure(node, enclosure, files), name=f"limits of {node.path}")
            await work
            measuring.cancel()

    async def _measure(self, node: Node, enclosure: Enclosure, files: StepFiles) -> None:
        while (claim := shim.read_claim(files)) is None:
            await self._state.context.clock.sleep(POLL_SECONDS)
        self._state.stop(node, Cause.LIMIT, await enclosure.until_exceeded(claim[0], self._state.context.clock))

    async def _prepare(self, node: Node, enclosure: Enclosure, files: StepFiles) -> Launch:
        state = self._state
        wrap = state.enforcement.wrap_job_command
        prepared = await state.write(partial(launch, state.tree, state.facts, node, files, wrap))
        if prepared.only_for_shells:
            names = ", ".join(prepared.only_for_shells)
            text = "variables too large for the environment of programs, known to the script's shell only"
            state.warn(f"{text}: {names}")
        return replace(state.enforcement.around_launch(prepared, node, enclosure, files), key=state.facts.key)

    async def _judge(self, node: Node, run: _Run, enclosure: Enclosure, files: StepFiles) -> Finished:
        exit_code = run.record.exit_code if run.record else None
        if node.phase == DELEGATE and exit_code is None:
            await end_elsewhere(files)
        if run.result is not None:
            return run.result
        result = sequence.judge(node, exit_code=exit_code, is_jobs_doing=run.is_jobs_doing)
        if node.phase == DELEGATE:
            returned = self._store_delegated_results(node, files)
            result = returned if returned is not None and sequence.find_stop(node) is None else result
        if is_report_trusted(node) and (fault := read_failure(files.failure)):
            result = failure(fault, Kind.SYSTEM, fault=Fault.PLATFORM, exit_code=result.exit_code)
        if sequence.find_stop(node) is None and (broken := await enclosure.find_broken_limit()):
            result = failure(broken, Kind.LIMIT, exit_code=result.exit_code)
        return result

    def _finish(self, node: Node, result: Finished, run: _Run, enclosure: Enclosure, files: StepFiles) -> None:
        state, record = self._state, run.record
        usage = run.usage | enclosure.usage() if enclosure.group is not None else run.usage
        assert node.loaded is not None
        details = {"usage": usage} if usage or enclosure.group is not None else {}
        details |= state.enforcement.report(state.enforcement.decide(node, node.loaded), enclosure)
        product = StepProduct(masks=run.masks, details=details, suffixes=files.list_suffixes())
        if result.status is Status.SUCCESS:
            try:
                outputs, exports = read_step_outputs(node, files, product.suffixes or set())
                product = replace(product, outputs=outputs, exports=exports)
            except DefinitionError as error:
                result = failure(str(error), Kind.OUTPUTS, exit_code=result.exit_code)
        ended_at = step_results.choose_end_time(
            record.ended_at if record is not None else None,
            started_at=node.started_at,
            now=state.context.clock.now(),
        )
        # Stored before the result: after that the step's files, by which its processes are found, are removed.
        claim = (record.pid, record.start) if record is not None else None
        if claim and (leftover := leftovers.find(claim, state.facts.key, worker_waits=run.worker_waits)):
            state.journal.record_leftover(leftover)
        state.finish(node, result, replace(product, ended_at=ended_at))

    def _store_delegated_results(self, node: Node, files: StepFiles) -> Finished | None:
        """Store new results of the inner steps that another agent runs for the step `node` (delegation). Returns their
        overall result; None until the other agent has reported it."""
        events, end, place = read_returned(files.results, node.folded, self._returned.get(node.serial, (0, 0)))
        is_trusted = not self._state.facts.is_apart
        shown = step_results.Shown(self._state.log.secrets)
        show = None if is_trusted else partial(shown.values, limit=LONGEST_UNTRUSTED_TEXT)
        for event in events:
            result = translate_result(node, event, show=show) if "path" in event else None
            self._state.record(replay.delegated_result_event(node, event), result)
        self._returned[node.serial] = place
        if end and end.get("held"):
            hold.put_off_end(self._state.journal.folder, own_command("delegate", "--end"), files.order)
        return outcome_of(end, is_trusted=is_trusted) if end else None

    def _callbacks_for(self, node: Node, files: StepFiles) -> JobCallbacks:
        state = self._state

        def look() -> None:
            if node.phase == DELEGATE:
                self._store_delegated_results(node, files)

        deadline = sequence.next_deadline(node, job_deadline=state.facts.deadline)

        def has_cause() -> bool:
            # Asked at every look, and almost never true: the cheap checks come first.
            is_quiet = deadline is None or state.context.clock.now() < deadline
            return not (is_quiet and not state.tree.has_stopped) and self._has_cause(node)

        return JobCallbacks(
            has_cause=has_cause,
            is_stopped=lambda: state.tree.has_stopped and sequence.find_stop(node) is not None,
            next_deadline=lambda: deadline,
            mask=state.mask,
            look=look,
            warn=state.warn,
            grace_seconds=grace_seconds(node),
            holds_back=self._holds_back,
            notify=self._notify,
            wait_for_space=state.wait_for_space,
            write=state.write,
        )

    def _holds_back(self) -> bool:
        self._is_held_back = self._state.log.holds_back()
        return self._is_held_back

    def _has_cause(self, node: Node) -> bool:
        state = self._state
        if sequence.find_stop(node) is not None:
            return True
        reason = sequence.reason_to_end(node, now=state.context.clock.now(), job_deadline=state.facts.deadline)
        if reason is not None:
            state.stop(*reason)
        return reason is not None
