"""Pipeline schedules, trigger tokens and releases."""

from collections.abc import Callable, Sequence
from typing import Protocol

from remuda.cell.values import Release, Schedule, TriggerToken
from remuda.model.job import ProjectId


class ScheduleStore(Protocol):
    """Schedules, trigger tokens and releases."""

    async def add_schedule(self, schedule: Schedule) -> Schedule:
        """Store it with a new id."""
        ...

    async def load_schedule(self, schedule_id: int) -> Schedule | None: ...

    async def list_schedules(self, project_id: ProjectId) -> Sequence[Schedule]: ...

    async def change_schedule(self, schedule_id: int, decide: Callable[[Schedule], Schedule | None]) -> Schedule | None:
        """Store and return what `decide` returns; None when it returns None or the schedule does not exist."""
        ...

    async def remove_schedule(self, schedule_id: int) -> bool: ...

    async def list_due_schedules(self, now: float) -> Sequence[Schedule]:
        """Active schedules whose next run is not after `now`, the longest due first."""
        ...

    async def add_trigger(self, trigger: TriggerToken) -> TriggerToken:
        """Store it with a new id. ConflictError when the token exists."""
        ...

    async def find_trigger(self, token_hash: str) -> TriggerToken | None: ...

    async def list_triggers(self, project_id: ProjectId) -> Sequence[TriggerToken]: ...

    async def put_trigger(self, trigger: TriggerToken) -> None:
        """Raises NotFoundError when it does not exist."""
        ...

    async def remove_trigger(self, trigger_id: int) -> bool: ...

    async def put_release(self, release: Release, *, replace: bool) -> bool:
        """False when it exists and `replace` is off, or is missing and `replace` is on."""
        ...

    async def list_releases(self, project_id: ProjectId) -> Sequence[Release]:
        """Newest first."""
        ...

    async def remove_release(self, project_id: ProjectId, tag: str) -> bool: ...
