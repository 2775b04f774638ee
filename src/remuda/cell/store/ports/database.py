"""The interface to a database (SQLite, PostgreSQL or memory) that the classes in `ports` use. Those of jobs and
pipelines have further methods, written for each database. A row has the whole value as JSON in the column `body`, and
copies of the fields that queries need in other columns (`Table.columns`)."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from remuda.cell.errors import ConflictError
from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.values import Family, Job, Page, Pipeline
from remuda.cell.values.changes import OtherChanges
from remuda.model.job import JobId, PipelineId, ProjectId, RunnerId
from remuda.pipeline import JobSpec

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

Comparison = tuple[str, str, Any]
"""A column, one of `<`, `<=`, `>` and `in`, and a value."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Table(Generic[T]):
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
    """If False, the columns are the fields of `kind`, a NamedTuple."""
    is_numbered: bool = False
    """Rows have a `number` in the order in which they were added."""
    generated: frozenset[str] = frozenset()
    """Columns that SQLite computes from the body."""
    shortened: frozenset[str] = frozenset()
    """Text columns in which PostgreSQL stores a long text as its beginning and a hash."""

    @property
    def column_list(self) -> str:
        """The columns to select, as SQL, so that `Table.read` can decode the result."""
        return "body" if self.has_body else ", ".join(self.kind._fields)  # type: ignore[attr-defined]

    def read(self, row: Sequence[Any]) -> T:
        """Decode a row that has the columns of `column_list`, in that order."""
        return decode(self.kind, row[0]) if self.has_body else self.kind(*row)

    def row(self, value: T) -> dict[str, Any]:
        """Return all columns of the row for a value, by name, including `body` with the encoded value."""
        return {**self.columns(value), "body": encode(value)} if self.has_body else dict(self.columns(value))


@dataclass(frozen=True)
class Lock:
    """Names a lock that one transaction at a time can hold, in all processes: `Lock("project", 7)` for project 7."""

    kind: str
    of: int | str = 0


PATHS = Lock("paths")
"""Lock of transactions that give a path to a project or namespace, or check which paths exist."""
TOKENS = Lock("tokens")
"""Lock of transactions that add or change a user token."""


class Rows(Protocol):
    """Reads and writes rows. `**columns` selects rows by values of columns, or of JSON fields (`Table.fields`)."""

    async def find(self, table: Table[T], **columns: Any) -> T | None:
        """Return the row whose columns have these values, or None. The values must identify at most one row."""
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
        """Return rows that have these values and for which `where` is true, sorted by `order` (such as `id DESC`)."""
        ...

    async def add(self, table: Table[T], *values: T) -> None:
        """Add rows for the values. The caller must make sure that no row with the same key exists."""
        ...

    async def add_if_absent(self, table: Table[T], value: T) -> bool:
        """Add a row, unless one has the same key or the same value in a unique column. Returns whether it was added."""
        ...

    async def put(self, table: Table[T], value: T) -> None:
        """Add a row, or replace the one with the same key."""
        ...

    async def update(self, table: Table[T], value: T) -> bool:
        """Replace the row with the same key. Returns False if there is none."""
        ...

    async def remove(self, table: Table[Any], **columns: Any) -> int:
        """Remove the rows whose columns have these values. Returns how many were removed."""
        ...


class Transaction(Rows, Protocol):
    """Reads and writes rows in one transaction: all its changes are committed together, or none."""

    async def find_locked(self, table: Table[T], **columns: Any) -> T | None:
        """Return the row with these values, or None, and lock it against other transactions until this one ends."""
        ...

    async def has_match(self, table: Table[Any], selection: Any) -> bool:
        """Return whether the table has a row that matches the filter `selection` (such as a `ProjectFilter`)."""
        ...

    async def draw_id(self, table: Table[Any]) -> int:
        """Return a new id for a row of the table. An id is never assigned twice, even if its row is removed."""
        ...

    async def draw_pipeline(self, project_id: ProjectId) -> tuple[int, PipelineId] | None:
        """Return a new pipeline's number in the project (iid) and its id; None if the project does not exist."""
        ...

    async def draw_job_ids(self, count: int) -> Sequence[JobId]: ...

    async def find_taken_groups(self, pipeline: Pipeline, jobs: Sequence[Job]) -> frozenset[str]:
        """Return those resource groups of `jobs` that the pipeline cannot have now: a job of another pipeline has them,
        or gets them first by the process mode of the group."""
        ...

    async def read_family(self, pipeline: Pipeline) -> Family: ...

    async def add_jobs(self, jobs: Sequence[tuple[Job, JobSpec]]) -> None:
        """Add new jobs, each with its spec (script, image and so on), which later retries of the job share."""
        ...

    async def update_job(self, job: Job) -> None:
        """Store a changed job, which this transaction must have read with `find_locked`."""
        ...


class Database(Rows, Protocol):
    """The database of a cell. Methods read or write single rows; `change` runs several in one transaction."""

    async def change(self, work: Callable[[Transaction], Coroutine[Any, Any, T]], lock: Lock | None = None) -> T:
        """Run `work` in a transaction and return its result. With `lock`, it first waits for that lock and keeps it
        until the end. After a conflict with another transaction `work` is called again."""
        ...

    async def find_page(
        self, table: Table[T], page: Page, selection: Any, *, order: str | None = None
    ) -> tuple[list[T], int]:
        """Return one page of the rows that match the filter `selection`, newest first or sorted by the column `order`,
        and the number of all matches (0 if `page` asks for no count)."""
        ...

    async def put_inside(self, table: Table[T], value: T, owner: Table[Any], owner_id: int) -> bool:
        """Add a row for `value`, or replace the row with the same key, but only if the table `owner` has a row with the
        id `owner_id`. Returns whether the value was stored."""
        ...

    async def remove_some(self, table: Table[Any], where: Comparison, *, limit: int) -> int:
        """Remove at most `limit` rows for which `where` is true, from a table with ids. Returns how many."""
        ...

    async def close(self) -> None: ...

    async def warm_up(self) -> None: ...

    async def check_writable(self) -> None: ...

    def watch_changes(self) -> AsyncGenerator[OtherChanges, None]: ...

    def announce_runner(self, runner_id: RunnerId) -> None:
        """Tell other processes of the cell that a runner was changed or removed."""
        ...


async def add_row(database: Database, table: Table[S], value: S, *, taken: str = "the new id is taken already") -> S:
    """Store a value with a new id and return it. Raises ConflictError(taken) if its id or unique value exists."""

    async def add(rows: Transaction) -> S:
        added = replace(value, id=await rows.draw_id(table))
        if not await rows.add_if_absent(table, added):
            raise ConflictError(taken)
        return added

    return await database.change(add)


async def change_row(
    database: Database, table: Table[T], row_id: int, decide: Callable[[T], T | None], lock: Lock | None = None
) -> T | None:
    """Store and return what `decide` returns for the stored row; None if it returns None or the row does not exist."""

    async def change(rows: Transaction) -> T | None:
        value = await rows.find_locked(table, id=row_id)
        changed = decide(value) if value is not None else None
        if changed is not None:
            await rows.update(table, changed)
        return changed

    return await database.change(change, lock)
