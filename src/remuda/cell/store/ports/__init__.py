"""The interfaces ("ports") to a cell's store; tests/contract/cell has one test suite that every implementation must
pass. Writes are transactions. If the new value depends on the stored one, the caller passes a pure function (`decide`),
which gets the stored value and returns the new one. The store may call it more than once, and stores its result only if
the rows that it changes are still the same. All changes that `decide` returns are stored together or not at all."""

from remuda.cell.store.ports.deployments import DeploymentStore
from remuda.cell.store.ports.hooks import HookStore
from remuda.cell.store.ports.jobs import JobStore
from remuda.cell.store.ports.lfs import LfsStore
from remuda.cell.store.ports.people import PeopleStore
from remuda.cell.store.ports.pipelines import PipelineStore
from remuda.cell.store.ports.projects import ProjectStore
from remuda.cell.store.ports.runners import RunnerStore
from remuda.cell.store.ports.schedules import ScheduleStore
from remuda.cell.store.ports.sessions import SessionStore
from remuda.cell.store.ports.settings import SettingStore
from remuda.cell.store.ports.store import Store

__all__ = [
    "DeploymentStore",
    "HookStore",
    "JobStore",
    "LfsStore",
    "PeopleStore",
    "PipelineStore",
    "ProjectStore",
    "RunnerStore",
    "ScheduleStore",
    "SessionStore",
    "SettingStore",
    "Store",
]
