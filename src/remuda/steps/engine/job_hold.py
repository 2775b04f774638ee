"""The hold of a failed job: how long its environments are kept for debugging, and how a user's shell enters them."""

import logging

from remuda.lib.waiting import LightEvent, wait_for_any_event
from remuda.steps.engine import hold
from remuda.steps.engine.job_request import build_closing_command, read_facts
from remuda.steps.engine.process_execution import AgentContext
from remuda.steps.job_files.journal import Journal
from remuda.steps.job_tree.tree import is_confined
from remuda.steps.language.reading import read_step
from remuda.steps.policy.enforcement import PolicyEnforcement

logger = logging.getLogger(__name__)


class JobHold:
    """Keeps the environments of a failed job open for debugging, if the request that started the job asks for it."""

    def __init__(self, journal: Journal, context: AgentContext) -> None:
        self._journal = journal
        self._context = context
        self._is_released = LightEvent()
        self.has_ended = LightEvent()
        """Set when the hold is over and the job's environments are closed, as far as that was possible."""

    @property
    def is_active(self) -> bool:
        end = self._journal.end
        return end is not None and end.held_until > 0 and not self._journal.is_released

    @property
    def remaining_seconds(self) -> int:
        """Return how many more seconds the job's environments are kept for debugging; 0 if the job is not on hold."""
        if self._journal.end is None or not self.is_active:
            return 0
        return max(1, round(self._journal.end.held_until - self._context.clock.now()))

    def release(self) -> None:
        self._is_released.set()

    async def wait(self, job_id: str) -> None:
        assert self._journal.end is not None
        clock = self._context.clock
        seconds = self._journal.end.held_until - clock.now()
        await wait_for_any_event(clock, self._is_released, within_seconds=seconds, name=f"job {job_id}: hold")
        self._is_released.set()

    def entrance(self, enforcement: PolicyEnforcement) -> hold.Entrance | None:
        """Return where a user's shell would run during the hold; None if there is none or its time is over. Raises
        AgentError if the job's own steps need an environment that was not opened, or could not be kept."""
        if not self.is_active or self._is_released.is_set():
            return None
        folder, request = self._journal.folder, self._journal.read_request()
        is_inside = is_confined(read_step(request.steps, file="steps", job=True))
        facts = read_facts(
            request, self._journal, enforcement, self._context.base_env, is_inside=is_inside, has_begun=True
        )
        return hold.entrance(facts, hold.way_held(folder, is_inside=is_inside), hold.exports_held(folder))

    async def close(self, enforcement: PolicyEnforcement, job_id: str) -> None:
        """Run the postponed cleanup steps, except those that cannot start, and remove the job's control group."""
        folder = self._journal.folder
        for number, closing in enumerate(hold.closings(folder)):
            try:
                await hold.close(closing, *build_closing_command(enforcement, closing, folder, number))
            except (OSError, ValueError) as error:
                logger.warning("job %s: cannot start a postponed cleanup step, skipping it: %s", job_id, error)
        enforcement.leave_slot()
