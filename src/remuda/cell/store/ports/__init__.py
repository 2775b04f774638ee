"""What the cell's decisions need from outside: a store, traces, blobs. Each has one contract suite in tests/contract.

The store's writes are transactions. Where a change needs a decision, the caller passes a pure function and the store
calls it inside the transaction with the current values; the function may be called more than once and must have no
effect but its result. That is how a decision and its consequences are stored together or not at all.
"""

from remuda.cell.blobs.port import Blobs, StoredBlob
from remuda.cell.store.ports.store import Store
from remuda.cell.traces.port import Appended, Traces
from remuda.cell.values.changes import Applied, Belongings, Changes, Leaves, Retry

__all__ = ["Appended", "Applied", "Belongings", "Blobs", "Changes", "Leaves", "Retry", "Store", "StoredBlob", "Traces"]
