"""What the cell's decisions need from outside: a store, traces, blobs. Each has one contract suite in tests/contract.

The store's writes are transactions. Where a change needs a decision, the caller passes a pure function and the store
calls it inside the transaction with the current values; the function may be called more than once and must have no
effect but its result. That is how a decision and its consequences are stored together or not at all.
"""

from remuda.cell.ports.blobs import Blobs, StoredBlob
from remuda.cell.ports.changes import Applied, Belongings, Changes, Leaves, Retry
from remuda.cell.ports.store import Store
from remuda.cell.ports.traces import Appended, Traces

__all__ = ["Appended", "Applied", "Belongings", "Blobs", "Changes", "Leaves", "Retry", "Store", "StoredBlob", "Traces"]
