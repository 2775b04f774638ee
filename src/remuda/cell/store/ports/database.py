"""What the store's rules need from a database: rows of tables by their columns, and transactions.

SQLite, PostgreSQL and memory each implement this. The ports of seldom used tables are written once on top of it; those
of jobs and pipelines have further methods in each database. A row holds the whole value as its body, and beside it the
columns that queries need (`Table.columns`).
"""

from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from remuda.cell.errors import ConflictError
from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.values import Family, Job, Page, Pipeline
from remuda.model.job import JobId, PipelineId, ProjectId
from remuda.pipeline import JobSpec

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

Comparison = tuple[str, str, Any]
"""A column, one of `<`, `<=`, `>` and `in`, and a value."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Table(Generic[T]):
    """One table: how its rows are identified and which columns they have."""

    name: str
    kind: type[T]
    key: tuple[str, ...] = ("id",)
    columns: Callable[[T], Mapping[str, Any]]
    """All columns but `body` of the row for a value."""
    unique: str | None = None
    """A further column in which no two rows have the same value."""
    fields: frozenset[str] = frozenset()
    """Fields of the body by which rows are found though they have no column."""
    has_body: bool = True
    """Off: the columns are the fields of `kind`, a NamedTuple."""
    is_numbered: bool = False
    """Rows have a `number` in the order in which they were added."""
    generated: frozenset[str] = frozenset()
    """Columns that SQLite computes from the body."""
    shortened: frozenset[str] = frozenset()
    """Text columns that PostgreSQL indexes; it stores long texts as a prefix and a hash there."""

    @property
    def column_list(self) -> str:
        """The columns to select for `read`."""
        return "body" if self.has_body else ", ".join(self.kind._fields)  # type: ignore[attr-defined]

    def read(self, row: Sequence[Any]) -> T:
        """The value of a row of the columns in `column_list`."""
        return decode(self.kind, row[0]) if self.has_body else self.kind(*row)

    def row(self, value: T) -> dict[str, Any]:
        """All columns of the row for a value, with the body."""
        return {**self.columns(value), "body": encode(value)} if self.has_body else dict(self.columns(value))


@dataclass(frozen=True)
class Lock:
    """A lock for work that only one transaction at a time may do, if several processes use one database."""

    kind: str
    of: int | str = 0


PATHS = Lock("paths")
"""Give a path to a project or a namespace."""
TOKENS = Lock("tokens")
"""Add or change a user token."""


class Rows(Protocol):
    """Reads and writes of single tables. Keyword arguments are columns, or fields of the body, and their values."""

    async def find(self, table: Table[T], **columns: Any) -> T | None:
        """The row with these values, which are unique."""
        ...

    async def find_all(
        self,
        table: Table[T],
        *,
        where: Comparison | None = None,
        order: Sequence[str] = (),
        limit: int | None = None,
        **columns: Any,
    ) -> list[T]:
        """All rows with these values. A column in `order` may end in DESC."""
        ...

    async def add(self, table: Table[T], *values: T) -> None:
        """Add rows whose keys are new."""
        ...

    async def add_if_absent(self, table: Table[T], value: T) -> bool:
        """Add a row. False when a row has the same key, or the same value in another unique column."""
        ...

    async def put(self, table: Table[T], value: T) -> None:
        """Add a row, or replace the one with the same key."""
        ...

    async def update(self, table: Table[T], value: T) -> bool:
        """Replace the row with the same key. False when there is none."""
        ...

    async def remove(self, table: Table[Any], **columns: Any) -> int:
        """Remove the rows with these values. Returns how many there were."""
        ...


class Transaction(Rows, Protocol):
    """Everything that is done through it is stored together, or not at all."""

    async def find_locked(self, table: Table[T], **columns: Any) -> T | None:
        """As `find`; no other transaction changes the row until this one ends."""
        ...

    async def has_match(self, table: Table[Any], selection: Any) -> bool:
        """Whether a row fits a filter."""
        ...

    async def draw_id(self, table: Table[Any]) -> int:
        """A new id. None of them is ever given again."""
        ...

    async def draw_pipeline(self, project_id: ProjectId) -> tuple[int, PipelineId] | None:
        """The iid and the id of a project's next pipeline; None when the project does not exist."""
        ...

    async def draw_job_ids(self, count: int) -> Sequence[JobId]: ...

    async def find_taken_groups(self, pipeline: Pipeline, jobs: Sequence[Job]) -> frozenset[str]:
        """The resource groups of these jobs that a job of another pipeline occupies."""
        ...

    async def read_family(self, pipeline: Pipeline) -> Family: ...

    async def add_jobs(self, jobs: Sequence[tuple[Job, JobSpec]]) -> None:
        """New jobs, each with its spec. Later tries of a job share the spec of the first."""
        ...

    async def update_job(self, job: Job) -> None:
        """Store a job whose row was read with `find_locked`."""
        ...


class Database(Rows, Protocol):
    """One database of a cell."""

    async def change(self, work: Callable[[Transaction], Coroutine[Any, Any, T]], lock: Lock | None = None) -> T:
        """Run `work` in a transaction and return its result. It may be run more than once."""
        ...

    async def find_page(
        self, table: Table[T], page: Page, selection: Any, *, order: str | None = None
    ) -> tuple[list[T], int]:
        """One page of the rows that fit a filter, newest first or ordered by a column, and the total."""
        ...

    async def put_inside(self, table: Table[T], value: T, owner: Table[Any], owner_id: int) -> bool:
        """As `put`, in one statement, if `owner` has a row with this id. Returns whether it has."""
        ...

    async def remove_some(self, table: Table[Any], where: Comparison, *, limit: int) -> int:
        """Remove at most `limit` rows that have an id. Returns how many."""
        ...

    async def close(self) -> None: ...

    async def warm_up(self) -> None: ...

    async def check_writable(self) -> None: ...

    def watch_changes(self) -> AsyncGenerator[Collection[JobId], None]: ...


async def add_row(database: Database, table: Table[S], value: S, *, taken: str = "the new id is taken already") -> S:
    """Store a value with a new id. Raises ConflictError with the text `taken` when another row has its unique value."""

    async def add(rows: Transaction) -> S:
        added = replace(value, id=await rows.draw_id(table))
        if not await rows.add_if_absent(table, added):
            raise ConflictError(taken)
        return added

    return await database.change(add)


async def change_row(
    database: Database, table: Table[T], row_id: int, decide: Callable[[T], T | None], lock: Lock | None = None
) -> T | None:
    """Store and return what `decide` returns for a row; None when it returns None or the row does not exist."""

    async def change(rows: Transaction) -> T | None:
        value = await rows.find_locked(table, id=row_id)
        changed = decide(value) if value is not None else None
        if changed is not None:
            await rows.update(table, changed)
        return changed

    return await database.change(change, lock)
