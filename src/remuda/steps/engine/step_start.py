"""Begins a step: loads its package, asks the policy, evaluates its expressions, and stores that it has begun.

A step that cannot begin is finished here, with the reason as its result."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from urllib.parse import urlsplit

from remuda.lib.clock import stamp
from remuda.lib.killpoints import reach
from remuda.steps.engine import step_results
from remuda.steps.engine.job_state import JobState
from remuda.steps.engine.loading import check_room, load
from remuda.steps.engine.script import check_script
from remuda.steps.engine.step_results import StepProduct
from remuda.steps.errors import AgentError
from remuda.steps.job_files.job_packages import packages_folder, share_package
from remuda.steps.job_tree import replay, sequence
from remuda.steps.job_tree.evaluation import evaluate, secrets_of, step_environment
from remuda.steps.job_tree.outcome import Fault, Kind, failure
from remuda.steps.job_tree.rights import exchange_of
from remuda.steps.job_tree.stored_steps import load_known
from remuda.steps.job_tree.tree import NOTHING_INSERTED, Entered, Loaded, Node, State
from remuda.steps.language.evaluate import reveal
from remuda.steps.language.references import without_credentials
from remuda.steps.language.values import Reference, ReferenceKind
from remuda.steps.policy.values import Decision
from remuda.steps.resolving.errors import TemporaryResolveError
from remuda.steps.resolving.git import longest_silence

_LOCAL = (ReferenceKind.LOCAL, ReferenceKind.BUILTIN)
"""Kinds of references that are loaded without a server, and so without a time limit."""

SILENT_SECONDS = 3.0
"""How long a package is fetched before the log says so."""


def describe_fetch(reference: Reference, begun: float, deadline: float | None) -> str:
    """Return the line for the log about a package that its server has not sent yet. `deadline`: of the step."""
    is_git = reference.kind is ReferenceKind.GIT
    seconds = longest_silence(reference)
    host = (urlsplit(reference.url).netloc.rpartition("@")[2] if is_git else reference.registry) or "its server"
    until = min(begun + seconds, deadline if deadline is not None else inf)
    return (
        f"Waiting for {host}, which has not sent the step {without_credentials(reference.text)} since "
        f"{_time(begun)}; if it does not answer, the step fails by {_time(until)}"
    )


def _time(seconds: float) -> str:
    return f"{stamp(seconds)[11:19]} UTC"


class StepStart:
    def __init__(self, state: JobState, *, notify: Callable[[], None]) -> None:
        """`notify` is called after new log lines."""
        self._state = state
        self._notify = notify
        self._loading: dict[Node, asyncio.Timeout] = {}
        self.newest = -1
        """Serial number of the step that this agent began last."""
        state.on_stop.append(self.interrupt_loading)

    def interrupt_loading(self) -> None:
        """Cancel the download of packages for steps that must end, such as after a cancellation of the job."""
        for node, timeout in self._loading.items():
            # A timeout that has expired already cannot be rescheduled.
            if sequence.find_stop(node) is not None and not timeout.expired():
                timeout.reschedule(asyncio.get_running_loop().time())

    async def begin(self, node: Node) -> bool:
        """Load the step, ask the policy, evaluate expressions, store that it has begun. Returns False if it is finished
        already (failed, stopped or denied), or if steps that a policy inserts have to run before it."""
        state = self._state
        if node.state is State.DELAYED:
            state.record(replay.again_event(node))
        try:
            check_room(state.tree, node)
            loaded = load_known(node) or await self._load(node)
            if loaded is None:
                state.finish(node, sequence.judge(node, exit_code=None))
                return False
            decision = state.enforcement.decide(node, loaded)
            if not decision.allowed:
                self._deny(node, loaded, decision)
                return False
            if self._surround(node, loaded):
                return False
            loaded = await self._share_package(node, loaded)
            entered = self._evaluate(node, loaded)
        except AgentError as error:
            # A reference that a user wrote is the user's choice, even if its server cannot be reached.
            is_ours = getattr(error, "temporary", False) and node.call.origin != "user"
            state.finish(node, failure(str(error), Kind.LOAD, fault=Fault.PLATFORM if is_ours else Fault.USER))
            return False
        if entered is None:
            return False
        self._enter(node, loaded, entered, timeout_seconds=decision.limits.timeout_seconds)
        return True

    async def _load(self, node: Node) -> Loaded | None:
        """Load the step's package; None if the step had to end before (stopped or timed out)."""
        state = self._state
        assert node.call.reference is not None
        assert state.context.resolver is not None
        substitutes = state.enforcement.policy.substitutes
        work = load(
            state.tree,
            state.facts,
            node,
            state.context.resolver,
            substitutes=substitutes,
            announce=partial(self.announce_fetch, node),
        )
        if node.call.reference.kind in _LOCAL:
            return await work
        limits = sequence.deadlines(node, job_deadline=state.facts.deadline)
        soonest = min(limits, key=lambda limit: limit[0], default=None)
        timeout = asyncio.timeout(None if soonest is None else soonest[0] - state.context.clock.now())
        self._loading[node] = timeout
        try:
            async with timeout:
                return await work
        except TimeoutError:
            if not timeout.expired():
                raise
        finally:
            del self._loading[node]
        if sequence.find_stop(node) is None and soonest is not None:
            state.stop(soonest[1], soonest[2])
        return None

    async def announce_fetch(self, node: Node, reference: Reference) -> None:
        """Say in the log, after a while, which server has not sent the step's package, since when, and until when it is
        tried."""
        state = self._state
        clock = state.context.clock
        begun = clock.now()
        await clock.sleep(SILENT_SECONDS)
        deadlines = [limit[0] for limit in sequence.deadlines(node, job_deadline=state.facts.deadline)]
        with suppress(OSError):  # a full disk: the next write finds that out
            state.log.say(describe_fetch(reference, begun, min(deadlines, default=None)))
        self._notify()

    async def _share_package(self, node: Node, loaded: Loaded) -> Loaded:
        """If the step's commands run in an environment or a sandbox, which do not show the agent's cache, put its
        package where they do show it. Returns the step with that place. Raises ResolveError if that fails."""
        state = self._state
        is_apart = node.host is not None or state.enforcement.sandbox is not None
        if not is_apart or not loaded.is_fetched or loaded.visible_folder:
            return loaded
        assert loaded.root is not None
        folder = packages_folder(state.facts.folder, exchange_of(node))
        try:
            files = await asyncio.to_thread(share_package, Path(loaded.root), folder)
        except OSError as error:
            raise TemporaryResolveError(
                f"the files of {loaded.reference} cannot be copied to the job's folder: {error}", is_away=False
            ) from None
        return replace(loaded, visible_folder=str(files / Path(loaded.folder).relative_to(loaded.root)))

    def _evaluate(self, node: Node, loaded: Loaded) -> Entered | None:
        """Evaluate the step's expressions. None if the policy denies its inputs: the step is recorded as failed."""
        state = self._state
        entered = evaluate(state.tree, state.facts, node, loaded, state.tree.serials)
        if loaded.is_script:
            check_script(reveal(dict(entered.inputs)))
        env = {} if state.facts.is_confined else step_environment(state.tree, state.facts, node, entered)
        decision = state.enforcement.decide_inputs(node, loaded, entered, env)
        if not decision.allowed:
            self._deny(node, loaded, decision)
            return None
        return entered

    def _enter(self, node: Node, loaded: Loaded, entered: Entered, *, timeout_seconds: float | None) -> None:
        """Store that the step has begun; the tree is changed first, because the event for clients is built from it."""
        state = self._state
        state.mask(secrets_of(loaded, entered))
        if loaded.remark:
            state.warn(loaded.remark)
        reach("agent.step_found")
        now, serial = state.context.clock.now(), state.tree.serials
        event = replay.enter_event(
            node,
            loaded,
            serial=serial,
            stream=state.tree.free_stream() if entered.command or loaded.is_script else 1,
            at=now,
            text=stamp(now),
            log_start=state.log.mark.length,
            timeout_seconds=timeout_seconds,
        )
        replay.apply(state.tree, state.facts, event, entering=(loaded, entered))
        self.newest = serial
        state.journal.record(event, step_results.start_event(node, state.log.secrets, now=now))

    def _deny(self, node: Node, loaded: Loaded, decision: Decision) -> None:
        details = self._state.enforcement.report(decision, None)
        if loaded.kind is not None:
            details["resolved"] = step_results.resolution(loaded, self._state.log.secrets)
        self._state.finish(node, failure(decision.reason, Kind.POLICY), StepProduct(details=details))

    def _surround(self, node: Node, loaded: Loaded) -> bool:
        """Insert the steps that a policy requires before and after this one. Returns True if there are any: then it
        does not begin now. Among parallel steps that is impossible: the step fails, and True is returned."""
        state = self._state
        around = NOTHING_INSERTED if node.is_surrounded else state.enforcement.around(node, loaded)
        if not around:
            return False
        assert node.parent is not None
        if node.parent.is_group:
            names = ", ".join(call.name for call in (*around.before, *around.after))
            error = f"a policy puts steps around it ({names}), which cannot be done where steps run at the same time"
            state.finish(node, failure(error, Kind.POLICY))
        else:
            state.record(replay.surround_event(node, around))
        return True
