"""The interfaces ("ports") to a cell's store; tests/contract/cell has one test suite that every implementation must
pass. Writes are transactions. Where a change needs a decision, the caller passes a pure function. The store calls it
with the stored values, possibly more than once, and stores its result only if the rows that it changes are still the
same. A decision and its consequences are stored together or not at all."""

from remuda.cell.store.ports.jobs import JobStore
from remuda.cell.store.ports.people import PeopleStore
from remuda.cell.store.ports.pipelines import PipelineStore
from remuda.cell.store.ports.projects import ProjectStore
from remuda.cell.store.ports.runners import RunnerStore
from remuda.cell.store.ports.schedules import ScheduleStore
from remuda.cell.store.ports.settings import SettingStore
from remuda.cell.store.ports.store import Store

__all__ = [
    "JobStore",
    "PeopleStore",
    "PipelineStore",
    "ProjectStore",
    "RunnerStore",
    "ScheduleStore",
    "SettingStore",
    "Store",
]
