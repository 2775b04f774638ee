"""The state of a running job: its tree of steps, its journal and its log.

Every change of a step is an event that is stored in the journal and applied to the tree, so that a new agent can
rebuild the same tree."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from remuda.lib.safe_paths import remove_tree
from remuda.steps.engine import step_results
from remuda.steps.engine.process_execution import AgentContext
from remuda.steps.engine.step_results import NO_PRODUCT, StepProduct
from remuda.steps.errors import DefinitionError
from remuda.steps.job_files.disk import LOOK_SECONDS, describe_wait, shows_full_disk
from remuda.steps.job_files.journal import Journal
from remuda.steps.job_files.log import LogFile
from remuda.steps.job_tree import replay, sequence
from remuda.steps.job_tree.evaluation import Facts, run_outputs, secrets_in
from remuda.steps.job_tree.outcome import Cause, Finished, Kind, Status, failure
from remuda.steps.job_tree.rights import exchange_of, find_exchange_files, has_private_files
from remuda.steps.job_tree.tree import Node, State, Tree
from remuda.steps.policy.enforcement import PolicyEnforcement
from remuda.steps.process.step_files import StepFiles

T = TypeVar("T")

MOST_WRITES = 5
"""How often a write is tried while the disk is full."""
_CLEAR = "\r\033[0K"


class JobState:
    def __init__(
        self,
        *,
        tree: Tree,
        facts: Facts,
        journal: Journal,
        log: LogFile,
        context: AgentContext,
        enforcement: PolicyEnforcement,
    ) -> None:
        self.tree = tree
        self.facts = facts
        self.journal = journal
        self.log = log
        self.context = context
        self.enforcement = enforcement
        self.on_stop: list[Callable[[], None]] = []
        """Called after a reason to end a step was stored."""

    def record(self, event: replay.Event, result: Mapping[str, Any] | None = None) -> None:
        """Store an event in the journal and apply it to the tree. `result`: the event for clients, if they get it."""
        self.journal.record(event, result)
        replay.apply(self.tree, self.facts, event)

    def mask(self, texts: Collection[str]) -> None:
        if texts:
            self.log.secrets = self.log.secrets.with_values(texts)

    def warn(self, text: str) -> None:
        self.log.say(f"WARNING: {text}")

    async def wait_for_space(self, meanwhile: Callable[[], object] = lambda: None, *, has_failed: bool = False) -> None:
        """Wait while the disk is full, until `ROOM_SECONDS` after it became full, and log how long. `meanwhile` is
        called periodically. `has_failed`: a write has just failed because the disk was full."""
        space, folder, clock = self.context.disk_space, self.journal.folder, self.context.clock
        if seconds := await space.wait(folder, clock, meanwhile, has_failed=has_failed):
            with suppress(OSError):  # full again: the next write finds that out
                self.log.say(describe_wait(seconds))

    async def write(self, act: Callable[[], T], meanwhile: Callable[[], object] = lambda: None) -> T:
        """Call `act`, which writes to the agent's disk and may be repeated, and return its result. If it raises OSError
        because the disk is full, wait for space and call it again, `MOST_WRITES` times in all; the last error is
        raised. `meanwhile` is called periodically during the wait."""
        for attempt in range(1, MOST_WRITES):
            try:
                return act()
            except OSError as error:
                if not shows_full_disk(error, self.journal.folder):
                    raise
            if attempt > 1:  # the job that filled the disk was stopped after the first failure, if it was found
                await self.context.clock.sleep(LOOK_SECONDS)
            await self.wait_for_space(meanwhile, has_failed=attempt == 1)
        return act()

    def files_of(self, node: Node) -> StepFiles:
        is_private = has_private_files(node, is_job_apart=self.facts.is_apart)
        return self.journal.step_files(node.serial, "" if is_private else exchange_of(node))

    def open_section(self, node: Node) -> None:
        """Write the section header of a step (GitLab's `section_start`) into the log, unless it is there."""
        first = f"section_start:{int(node.started_at)}:{step_results.section(node)}{_CLEAR}"
        self.log.open(node.serial, first, stream=node.stream)

    def stop(self, node: Node, cause: Cause, text: str = "") -> None:
        """Store why a step and its inner steps must end (`cause`, `text`), and call `on_stop`, so that commands end."""
        self.record(replay.stop_event(node, cause, text))
        for callback in self.on_stop:
            callback()

    def settle(self, node: Node, result: Finished) -> None:
        """Finish a step that runs no command itself, such as one whose inner steps have all ended. Stores `result` and,
        if the step has succeeded, its evaluated outputs; if an output is invalid, the step fails instead."""
        outputs: Mapping[str, Any] = {}
        if result.status is Status.SUCCESS and node.state is State.ENTERED:
            try:
                outputs = node.outputs if node.makes_environment else run_outputs(self.tree, self.facts, node)
            except DefinitionError as error:
                result = failure(str(error), Kind.OUTPUTS)
        self.finish(node, result, StepProduct(outputs=outputs))

    def finish(self, node: Node, result: Finished, product: StepProduct = NO_PRODUCT, *, is_last: bool = False) -> None:
        """Store that an attempt at a step has ended with `result`, and remove the attempt's files. `product`: its
        outputs, exports and so on. A failed step with retries left is delayed and tried again, unless `is_last`."""
        now = self.context.clock.now()
        product = replace(product, ended_at=product.ended_at or now)
        retry_at = None if is_last else sequence.retry_at(node, result, now=now)
        self.mask(secrets_in(product.outputs))
        if node.loaded is not None and "policy" not in product.details:
            report = self.enforcement.report(self.enforcement.decide(node, node.loaded), None)
            product = replace(product, details=dict(product.details) | report)
        is_open, serial = node.state is State.ENTERED, node.serial
        self._close_section(node, result, product.ended_at or now, retry_at=retry_at, now=now)
        files = self.files_of(node)
        public = step_results.finish_event(
            node,
            result,
            self.log.secrets,
            product,
            now=now,
            log=(node.log_start if is_open else self.log.mark.length, self.log.mark.length),
            is_retried=retry_at is not None,
        )
        if retry_at is None:
            event = replay.finish_event(node, result, product.outputs, product.exports, list(product.masks))
        else:
            event = replay.delay_event(node, result, until=retry_at, masks=list(product.masks))
        self.record(event, public)
        if is_open:
            self.log.forget(serial)
            self._remove_files(node, files, product.suffixes)

    def _close_section(
        self, node: Node, result: Finished, ended_at: float, *, retry_at: float | None, now: float
    ) -> None:
        lines = step_results.last_words(node, result, retry_at=retry_at, now=now)
        if node.state is State.ENTERED:
            self.log.close(node.serial, *lines, f"section_end:{int(ended_at)}:{step_results.section(node)}{_CLEAR}")
        elif lines:
            self.log.say(*lines)

    def _remove_files(self, node: Node, files: StepFiles, suffixes: set[str] | None) -> None:
        files.remove(suffixes)
        if (
            node.phase
            or node.host is not None
            or self.enforcement.is_restricted
            or self.enforcement.sandbox is not None
        ):
            files.remove_rare()
        if node is node.insertion:
            remove_tree(find_exchange_files(self.journal.folder, node).home, ignore_errors=True)
