"""One step of a running job: found, begun, run, ended, each stored before it counts.

`runner` says which step's turn it is; whatever is done here may be done again after a crash. What a step's end means
is decided in `plan`, what it is told as in `reporting`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.lib.clock import stamp
from remuda.lib.killpoints import reach
from remuda.lib.safe_paths import remove_tree
from remuda.lib.waiting import one_error
from remuda.steps.delegation.tree import end_elsewhere, folded, outcome_of, returned
from remuda.steps.engine import hold, step_results
from remuda.steps.engine.launching import grace_seconds, is_told_by_us, launch
from remuda.steps.engine.loading import check_room, load
from remuda.steps.engine.output_files import MOST_MASKS, read_failure, read_masks
from remuda.steps.engine.process_execution import Execution, Surroundings, Watched
from remuda.steps.engine.script import check_script
from remuda.steps.engine.step_outputs import gather
from remuda.steps.errors import AgentError, DefinitionError
from remuda.steps.job_files.disk import unstarted, waited
from remuda.steps.job_files.journal import Journal
from remuda.steps.job_files.log import LogFile, Output
from remuda.steps.job_tree import replay, sequence
from remuda.steps.job_tree.evaluation import Facts, evaluate, run_outputs, secrets_in, secrets_of, step_environment
from remuda.steps.job_tree.outcome import SKIPPED, Cause, Fault, Finished, Kind, Status, failure
from remuda.steps.job_tree.rights import exchange_of, find_exchange_files, has_private_files
from remuda.steps.job_tree.stored_steps import loaded_at_once
from remuda.steps.job_tree.tree import DELEGATE, NOTHING_INSERTED, Loaded, Node, State, Tree
from remuda.steps.language.evaluate import reveal
from remuda.steps.language.values import ReferenceKind
from remuda.steps.pack.program import own_command
from remuda.steps.policy.enforcement import Custody
from remuda.steps.policy.step_limits import Enclosure
from remuda.steps.policy.values import Decision
from remuda.steps.process import leftovers, shim
from remuda.steps.process.fork_servers import Leaders
from remuda.steps.process.kernel import POLL_SECONDS
from remuda.steps.process.launch import Launch
from remuda.steps.process.step_files import StepFiles

_CLEAR = "\r\033[0K"
_NEAR = (ReferenceKind.LOCAL, ReferenceKind.BUILTIN)
"""Found without asking anybody."""


class Carrier:
    """Everything a job's steps share while they run."""

    def __init__(
        self,
        tree: Tree,
        facts: Facts,
        journal: Journal,
        log: LogFile,
        around: Surroundings,
        custody: Custody,
        *,
        tell: Callable[[], None],
        end_shells: Callable[[str], Awaitable[None]],
        end_processes: Callable[[], Awaitable[None]],
    ) -> None:
        """`end_shells` ends all open shells of the job, tells their users the reason, and returns when they have ended.
        `end_processes` ends what steps have left running on the machine, and returns when that has ended."""
        self.tree = tree
        self.facts = facts
        self._journal = journal
        self._log = log
        self._around = around
        self._custody = custody
        self._tell = tell
        self._end_shells = end_shells
        self._end_processes = end_processes
        self._executions: dict[int, Execution] = {}
        self.leaders = Leaders(around.standby)
        self._loading: dict[Node, asyncio.Timeout] = {}
        self._may_start = asyncio.Event()
        self._may_start.set()
        self._is_holding = False
        self._newest = -1
        """Number of the step that began last, under this agent."""
        self._returned: dict[int, tuple[int, int]] = {}
        """Of a step that another agent runs: how far its results are read."""

    def look_again(self) -> None:
        """Something has changed that may be a reason to end."""
        for execution in self._executions.values():
            execution.look_again()
        for node, waiting in self._loading.items():
            # One that has expired already is on its way out.
            if sequence.reaching(node) is not None and not waiting.expired():
                waiting.reschedule(asyncio.get_running_loop().time())

    def go_on(self) -> None:
        """More of the log is safe elsewhere: steps that had to wait may print on."""
        if self._is_holding and not self._log.holds_back():
            self._is_holding = False
            for execution in self._executions.values():
                execution.look_again()

    def _holds_back(self) -> bool:
        self._is_holding = self._log.holds_back()
        return self._is_holding

    async def wait_for_room(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Other jobs may have filled the disk. `meanwhile` is called now and then."""
        if seconds := await self._around.room.wait(self._journal.folder, self._around.clock, meanwhile):
            self._log.say(waited(seconds))

    def kill(self) -> None:
        for execution in self._executions.values():
            execution.kill()

    def kill_for(self, cause: Cause, text: str) -> Callable[[], None]:
        """Kill what runs now, at once, for this reason; but no step that has just ended well.

        What it returns writes the reason down, which may not be possible yet."""
        nodes = [node for serial, node in self.tree.open.items() if serial in self._executions]
        records = {node: shim.record(self._journal.step_files(node.serial)) for node in nodes}
        events = {
            node: replay.stop_event(node, cause, text)
            for node, record in records.items()
            if record is None or record.exit_code != 0
        }
        for event in events.values():
            replay.apply(self.tree, self.facts, event)
        self.kill()

        def record_reason() -> None:
            for node, event in events.items():
                if node.serial in self.tree.open:  # else the reason is in its result
                    self._journal.record(event)
            self.look_again()

        return record_reason

    @contextmanager
    def start_nothing(self) -> Iterator[None]:
        """Start no command meanwhile: who ends all processes of the job would end it, too. Commands that have begun
        and not started wait."""
        self._may_start.clear()
        try:
            yield
        finally:
            self._may_start.set()

    def mask(self, texts: Collection[str]) -> None:
        """From now on these do not show."""
        if texts:
            self._log.secrets = self._log.secrets.and_also(texts)

    def stop(self, node: Node, cause: Cause, text: str = "") -> None:
        """There is a reason to end a step and what is below."""
        event = replay.stop_event(node, cause, text)
        self._journal.record(event)
        replay.apply(self.tree, self.facts, event)
        self.look_again()

    async def carry(self, node: Node) -> None:
        """Begin a step unless it has begun, and carry its command to its end if it has one."""
        is_new = node.state is not State.ENTERED
        if is_new and not await self._begin(node):
            return
        if node.follows_job and (is_new or (node.has_command and shim.claimed(self._files(node)) is None)):
            # What the job left running could trace the step, where both have one user. The step counts as begun, so no
            # shell can be opened that would start more.
            await self._end_shells(hold.no_shell_beside(node))
            await self._end_processes()
        if node.has_command and not await self._puts_off(node):
            await self._execute(node)
        elif not node.has_command:
            self.show(node)

    async def _puts_off(self, node: Node) -> bool:
        """Whether the step would end what a held job keeps; then it is written down for later. A container that cannot
        be paused is not kept."""
        if not self.facts.hold_failed_seconds or not hold.is_put_off(self.tree, node):
            return False
        files = self._files(node)
        if shim.claimed(files) is not None:  # it ran before it was known that the job is held
            return False
        self.show(node)
        enclosure = self._custody.enclose(node)
        is_jobs = enclosure.person is not None
        enclosure.remove()
        try:
            env_file = self._journal.folder / f"held-{node.serial}.sandbox"
            prepared = self._custody.wrap_in_sandbox(launch(self.tree, self.facts, node, files), node, env_file)
            if is_jobs:
                self._custody.give(files, node, has_raw=False)
            if hold.keeps_container(node):
                if not await hold.pause(prepared):
                    self._log.say("WARNING: the container is not kept for a look: it cannot be paused")
                    return False
                if not hold.is_put_off(self.tree, node):  # somebody has cancelled the job meanwhile
                    return False
            hold.put_off(self._journal.folder, node, prepared, is_jobs=is_jobs)
        except (AgentError, OSError):
            # Executed now, the step itself fails for that reason, and not the job.
            return False
        reach("agent.put_off")
        self.finish(node, SKIPPED, left=set())
        return True

    def _files(self, node: Node) -> StepFiles:
        is_private = has_private_files(node, is_job_apart=self.facts.is_apart)
        return self._journal.step_files(node.serial, "" if is_private else exchange_of(node))

    def show(self, node: Node) -> None:
        """The first line of a step in the log."""
        first = f"section_start:{int(node.started_at)}:{step_results.section(node)}{_CLEAR}"
        self._log.open(node.serial, first, stream=node.stream)

    async def _begin(self, node: Node) -> bool:
        if node.state is State.DELAYED:
            event = replay.again_event(node)
            self._journal.record(event)
            replay.apply(self.tree, self.facts, event)
        try:
            check_room(self.tree, node)
            loaded = loaded_at_once(node) or await self._load(node)
            if loaded is None:
                self.finish(node, sequence.judge(node, exit_code=None))
                return False
            decision = self._custody.decide(node, loaded)
            if not decision.allowed:
                self._deny(node, loaded, decision)
                return False
            if self._surround(node, loaded):
                return False
            serial = self.tree.serials
            entered = evaluate(self.tree, self.facts, node, loaded, serial)
            if loaded.is_script:
                check_script(reveal(dict(entered.inputs)))
            env = {} if self.facts.is_confined else step_environment(self.tree, self.facts, node, entered)
            by_inputs = self._custody.decide_inputs(node, loaded, entered, env)
            if not by_inputs.allowed:
                self._deny(node, loaded, by_inputs)
                return False
        except AgentError as error:
            # What a user refers to is the user's choice, also where it cannot be reached.
            is_ours = getattr(error, "temporary", False) and node.call.origin != "user"
            self.finish(node, failure(str(error), Kind.LOAD, fault=Fault.PLATFORM if is_ours else Fault.USER))
            return False
        self.mask(secrets_of(loaded, entered))
        if loaded.remark:
            self._log.say(f"WARNING: {loaded.remark}")
        reach("agent.step_found")
        now = self._around.clock.now()
        has_command = bool(entered.command) or loaded.is_script
        stream = self.tree.free_stream() if has_command else 1
        event = replay.enter_event(
            node,
            loaded,
            serial=serial,
            stream=stream,
            at=now,
            text=stamp(now),
            log_start=self._log.mark.length,
            timeout_seconds=decision.limits.timeout_seconds,
        )
        replay.apply(self.tree, self.facts, event, entering=(loaded, entered))
        self._newest = serial
        self._journal.record(event, step_results.started(node, self._log.secrets, now=now))
        return True

    def _deny(self, node: Node, loaded: Loaded, decision: Decision) -> None:
        more = self._custody.report(decision, None)
        if loaded.kind is not None:
            more["resolved"] = step_results.resolved(loaded, self._log.secrets)
        self.finish(node, failure(decision.reason, Kind.POLICY), more=more)

    def _surround(self, node: Node, loaded: Loaded) -> bool:
        """Put what a policy wants around a step into its list; whether there was something, whose turn it is then."""
        around = NOTHING_INSERTED if node.is_surrounded else self._custody.around(node, loaded)
        if not around:
            return False
        assert node.parent is not None
        if node.parent.is_group:
            names = ", ".join(call.name for call in (*around.before, *around.after))
            error = f"a policy puts steps around it ({names}), which cannot be done where steps run at the same time"
            self.finish(node, failure(error, Kind.POLICY))
            return True
        event = replay.surround_event(node, around)
        self._journal.record(event)
        replay.apply(self.tree, self.facts, event)
        return True

    async def _load(self, node: Node) -> Loaded | None:
        """What the step is; None when it was stopped before that was known."""
        assert node.call.reference is not None
        assert self._around.resolver is not None
        work = load(self.tree, self.facts, node, self._around.resolver, substitutes=self._custody.policy.substitutes)
        if node.call.reference.kind in _NEAR:
            return await work
        limits = sequence.deadlines(node, job_deadline=self.facts.deadline)
        soonest = min(limits, key=lambda limit: limit[0], default=None)
        waiting = asyncio.timeout(None if soonest is None else soonest[0] - self._around.clock.now())
        self._loading[node] = waiting
        try:
            async with waiting:
                return await work
        except TimeoutError:
            if not waiting.expired():
                raise
        finally:
            del self._loading[node]
        if sequence.reaching(node) is None and soonest is not None:
            self.stop(soonest[1], soonest[2])
        return None

    async def _execute(self, node: Node) -> None:
        if node.is_inserted:  # it has begun, so that no other shell is opened meanwhile
            await self._end_shells(hold.no_shell_beside(node))
        await self._may_start.wait()
        files = self._files(node)
        self.show(node)
        self._tell()
        result: Finished | None = None
        more: dict[str, Any] = {}
        masks: list[str]
        record: shim.Record | None = None
        is_jobs_doing = leader_waits = False
        enclosure = self._custody.enclose(node)
        if enclosure.limits_disk:
            enclosure = await asyncio.to_thread(enclosure.since, Path(files.own(".disk")))
            await self._may_start.wait()  # from here to the start nothing else is waited for
        if self._log.is_closed(node.serial):
            masks = read_masks(files.masks, 0, rest=True)[0][:MOST_MASKS]
            self.mask(masks)
        else:
            output = Output(self._log, node.serial, files.own(".raw"))
            watched = self._watched(node, files)
            is_new = node.serial == self._newest
            execution = Execution(files, output, watched, self._around, is_new=is_new, leaders=self.leaders)
            self._executions[node.serial] = execution
            try:
                if refusal := self._custody.refusal(enclosure):
                    result = failure(refusal, Kind.POLICY)
                else:
                    await self._run(node, execution, enclosure, files)
            except DefinitionError as error:
                result = failure(str(error), Kind.LOAD)
            except AgentError as error:
                result = failure(str(error), Kind.SYSTEM, fault=Fault.RUNNER)
            except OSError as error:
                execution.kill()
                result = unstarted(error, self._journal.folder)
            finally:
                del self._executions[node.serial]
            masks, record, is_jobs_doing = execution.masks, execution.record, execution.is_jobs_doing
            leader_waits = execution.leader_waits
            if (usage := execution.usage) is not None:
                more["usage"] = usage.as_told()
            if hint := enclosure.hint():
                self._log.say(f"WARNING: {hint}")
        outputs: Mapping[str, Any] = {}
        exports: Mapping[str, str] = {}
        left = files.left()
        record = shim.record(files) if record is None else record
        exit_code = record.exit_code if record else None
        if node.phase == DELEGATE and exit_code is None:
            await end_elsewhere(files)
        if result is None:
            result = sequence.judge(node, exit_code=exit_code, is_jobs_doing=is_jobs_doing)
            if node.phase == DELEGATE:
                told = self._fold(node, files)
                result = told if told is not None and sequence.reaching(node) is None else result
            if is_told_by_us(node) and (fault := read_failure(files.failure)):
                result = failure(fault, Kind.SYSTEM, fault=Fault.PLATFORM, exit_code=result.exit_code)
            if sequence.reaching(node) is None and (broken := await enclosure.broken_limit()):
                result = failure(broken, Kind.LIMIT, exit_code=result.exit_code)
        if enclosure.group is not None:
            more["usage"] = more.get("usage", {}) | enclosure.usage()
        more |= self._custody.report(self._custody.decide(node, _loaded(node)), enclosure)
        if result.status is Status.SUCCESS:
            try:
                outputs, exports = gather(node, files, left)
            except DefinitionError as error:
                result = failure(str(error), Kind.OUTPUTS, exit_code=result.exit_code)
        ended_at = step_results.choose_end_time(
            record.ended_at if record is not None else None,
            started_at=node.started_at,
            now=self._around.clock.now(),
        )
        # Stored before the result: with that the step's files, by which its processes are found, are forgotten.
        claim = (record.pid, record.start) if record is not None else None
        if claim and (leftover := leftovers.find(claim, self.facts.key, leader_waits=leader_waits)):
            self._journal.record_leftover(leftover)
        self.finish(
            node, result, ended_at=ended_at, outputs=outputs, exports=exports, masks=masks, more=more, left=left
        )
        enclosure.remove()

    async def _run(self, node: Node, execution: Execution, enclosure: Enclosure, files: StepFiles) -> None:
        work = execution.run(lambda: self._prepared(node, enclosure, files))
        if not enclosure.is_measured:
            await work
            return
        async with one_error(), asyncio.TaskGroup() as tasks:
            measuring = tasks.create_task(self._measure(node, enclosure, files), name=f"limits of {node.path}")
            await work
            measuring.cancel()

    async def _measure(self, node: Node, enclosure: Enclosure, files: StepFiles) -> None:
        """End a step that goes beyond what only the agent watches over."""
        while (claim := shim.claimed(files)) is None:
            await self._around.clock.sleep(POLL_SECONDS)
        self.stop(node, Cause.LIMIT, await enclosure.until_exceeded(claim[0], self._around.clock))

    def _prepared(self, node: Node, enclosure: Enclosure, files: StepFiles) -> Launch:
        prepared = launch(self.tree, self.facts, node, files)
        if prepared.only_for_shells:
            names = ", ".join(prepared.only_for_shells)
            self._log.say(
                f"WARNING: too large for the environment of programs, known to the script's shell only: {names}"
            )
        return replace(self._custody.around_launch(prepared, node, enclosure, files), key=self.facts.key)

    def _fold(self, node: Node, files: StepFiles) -> Finished | None:
        """Tell what another agent has told of its steps since the last time; how they ended, if they have."""
        events, end, self._returned[node.serial] = returned(
            files.results, node.folded, self._returned.get(node.serial, (0, 0))
        )
        for told in events:
            event = replay.folded_event(node, told)
            self._journal.record(event, folded(node, told) if "path" in told else None)
            replay.apply(self.tree, self.facts, event)
        if end and end.get("held"):
            hold.put_off_end(self._journal.folder, own_command("delegate", "--end"), files.order)
        return outcome_of(end) if end else None

    def _watched(self, node: Node, files: StepFiles) -> Watched:
        def look() -> None:
            if node.phase == DELEGATE:
                self._fold(node, files)

        deadline = sequence.next_deadline(node, job_deadline=self.facts.deadline)

        def has_cause() -> bool:
            # Asked at every look, and next to never so.
            is_quiet = deadline is None or self._around.clock.now() < deadline
            return not (is_quiet and not self.tree.has_stopped) and self._has_cause(node)

        return Watched(
            has_cause=has_cause,
            is_stopped=lambda: self.tree.has_stopped and sequence.reaching(node) is not None,
            next_deadline=lambda: deadline,
            mask=self.mask,
            look=look,
            warn=lambda text: self._log.say(f"WARNING: {text}"),
            grace_seconds=grace_seconds(node),
            holds_back=self._holds_back,
            tell=self._tell,
            wait_for_room=self.wait_for_room,
        )

    def _has_cause(self, node: Node) -> bool:
        if sequence.reaching(node) is not None:
            return True
        found = sequence.reason_to_end(node, now=self._around.clock.now(), job_deadline=self.facts.deadline)
        if found is not None:
            self.stop(*found)
        return found is not None

    def settle(self, node: Node, result: Finished) -> None:
        """Everything below a step has ended."""
        outputs: Mapping[str, Any] = {}
        if result.status is Status.SUCCESS and node.state is State.ENTERED:
            try:
                outputs = node.outputs if node.makes_environment else run_outputs(self.tree, self.facts, node)
            except DefinitionError as error:
                result = failure(str(error), Kind.OUTPUTS)
        self.finish(node, result, outputs=outputs)

    def finish(
        self,
        node: Node,
        result: Finished,
        *,
        ended_at: float | None = None,
        outputs: Mapping[str, Any] | None = None,
        exports: Mapping[str, str] | None = None,
        masks: list[str] | None = None,
        more: Mapping[str, Any] | None = None,
        left: set[str] | None = None,
        is_last: bool = False,
    ) -> None:
        """Store how a step ended, or that it is tried again, unless this `is_last`."""
        outputs, exports = outputs or {}, exports or {}
        now = self._around.clock.now()
        ended_at = ended_at or now
        again_at = None if is_last else sequence.retry_at(node, result, now=now)
        self.mask(secrets_in(outputs))
        is_open, serial = node.state is State.ENTERED, node.serial
        more = dict(more or {})
        if node.loaded is not None and "policy" not in more:
            more |= self._custody.report(self._custody.decide(node, node.loaded), None)
        lines = step_results.last_words(node, result, again_at=again_at, now=now)
        if is_open:
            self._log.close(serial, *lines, f"section_end:{int(ended_at)}:{step_results.section(node)}{_CLEAR}")
        elif lines:
            self._log.say(*lines)
        files = self._files(node)
        public = step_results.finished(
            node,
            result,
            self._log.secrets,
            now=now,
            ended_at=ended_at,
            log=(node.log_start if is_open else self._log.mark.length, self._log.mark.length),
            retried=again_at is not None,
            outputs=outputs,
            exports=exports,
            more=more,
        )
        if again_at is None:
            event = replay.finish_event(node, result, outputs, exports, masks or [])
        else:
            event = replay.delay_event(node, result, until=again_at, masks=masks or [])
        self._journal.record(event, public)
        replay.apply(self.tree, self.facts, event)
        if is_open:
            self._log.forget(serial)
            files.remove(left)
            if node.phase or node.host is not None or self._custody.has_a_say or self._custody.sandbox is not None:
                files.remove_rare()
            if node is node.insertion:
                remove_tree(find_exchange_files(self._journal.folder, node).home, ignore_errors=True)


def _loaded(node: Node) -> Loaded:
    assert node.loaded is not None
    return node.loaded
