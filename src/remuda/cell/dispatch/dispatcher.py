"""Creates the services of dispatch, which share one `DispatchMemory` (waiting and assigned jobs); one `Dispatch` per
process. Callers use the service that they need, such as `dispatch.handout.request_job(...)`."""

from remuda.cell.dispatch.explanations import Explanations
from remuda.cell.dispatch.handout import Handout
from remuda.cell.dispatch.job_changes import JobChanges
from remuda.cell.dispatch.memory import DispatchMemory
from remuda.cell.dispatch.queue_report import QueueReport
from remuda.cell.dispatch.runner_calls import RunnerCalls
from remuda.cell.dispatch.store_sync import StoreSync
from remuda.cell.dispatch.timeouts import Timeouts
from remuda.cell.dispatch.user_commands import UserCommands
from remuda.cell.operations.downtime import DowntimeFile
from remuda.cell.secrets.key_ring import KeyRing
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.traces.port import Traces
from remuda.lib.clock import Clock


class Dispatch:
    def __init__(
        self,
        store: Store,
        traces: Traces,
        clock: Clock,
        settings: CellSettings,
        keys: KeyRing,
        presence: DowntimeFile | None = None,
    ) -> None:
        self.memory = DispatchMemory(clock, cell_id=settings.cell_id)
        store.runner_listeners.append(self.memory.held_polls.rematch)
        self.sync = StoreSync(store, self.memory, clock)
        self.changes = JobChanges(store.jobs, store.pipelines, traces, self.memory, clock)
        self.handout = Handout(store, self.memory, self.changes, keys, clock, settings)
        self.runner_calls = RunnerCalls(
            store.jobs, store.pipelines, traces, self.memory, self.changes, keys, clock, settings
        )
        self.user_commands = UserCommands(store.jobs, store.pipelines, self.memory, self.changes, clock)
        self.timeouts = Timeouts(
            store, self.memory, self.sync, self.changes, presence or DowntimeFile(clock), clock, settings
        )
        self.explanations = Explanations(store, self.memory, clock)
        self.queue_report = QueueReport(store, self.memory, self.explanations, clock)
