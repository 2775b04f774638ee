"""Methods that read and write rows with the same SQL in SQLite and PostgreSQL. Statements have numbered parameters
(`$1`)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from remuda.cell.store.ports.database import Comparison, Database, Table
from remuda.cell.store.ports.tables import JOBS
from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.store.sql import statements
from remuda.cell.store.sql.filters import Conditions, Dialect, conditions, list_order
from remuda.cell.values import Job, Page
from remuda.model.job import JobId
from remuda.pipeline import JobSpec

T = TypeVar("T")


class SqlRows(ABC):
    dialect: ClassVar[Dialect]
    limits_parts: ClassVar[bool]
    """See `statements.select_page`."""

    @abstractmethod
    async def fetch(self, sql: str, *values: Any) -> Sequence[Any]:
        """Run a query and return its rows. `values` are the parameters `$1`, `$2` and so on."""

    @abstractmethod
    async def execute(self, sql: str, *values: Any) -> int:
        """Run a statement with the parameters `values`. Returns how many rows it changed."""

    @abstractmethod
    async def execute_many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each list of parameters in `values`."""

    @abstractmethod
    def row(self, table: Table[T], value: T) -> dict[str, Any]:
        """Return the columns, by name, that this database stores for a value."""

    async def find(self, table: Table[T], **columns: Any) -> T | None:
        values = await self.find_all(table, **columns)
        return values[0] if values else None

    async def find_all(
        self,
        table: Table[T],
        *,
        where: Comparison | None = None,
        order: Sequence[str] = (),
        limit: int | None = None,
        **columns: Any,
    ) -> list[T]:
        texts, values = self._where(table, columns, where)
        sql = statements.select(table, texts, tuple(order), has_limit=limit is not None)
        rows = await self.fetch(sql, *values, *(() if limit is None else (limit,)))
        return [table.read(row) for row in rows]

    async def find_page(
        self, table: Table[T], page: Page, selection: Any, *, order: str | None = None
    ) -> tuple[list[T], int]:
        where = conditions(selection, self.dialect)
        return await self.select_page(table.kind, table.name, where, page, order or list_order(selection, self.dialect))

    async def select_page(
        self, kind: type[T], table: str, where: Conditions, page: Page, order: str, states: Sequence[str] = ()
    ) -> tuple[list[T], int]:
        """Return one page of the rows for which all conditions of `where` (with their parameters) are true, sorted by
        `order` and decoded as `kind`, and the number of all such rows (0 if `page` asks for no count)."""
        count, sql, values = statements.select_page(table, where, page, order, states, limits_parts=self.limits_parts)
        total = sum(row[0] for row in await self.fetch(count, *values)) if page.counted else 0
        return [decode(kind, row[0]) for row in await self.fetch(sql, *values)], total

    async def has_match(self, table: Table[Any], selection: Any) -> bool:
        page = Page(size=1, counted=False)
        return bool((await self.find_page(table, page, selection))[0])

    async def add(self, table: Table[T], *values: T) -> None:
        await self._insert(table, [self.row(table, value) for value in values])

    async def _insert(self, table: Table[Any], rows: Sequence[Mapping[str, Any]]) -> None:
        if len(rows) == 1:
            await self.execute(statements.insert(table, tuple(rows[0])), *rows[0].values())
        elif rows:
            await self.execute_many(statements.insert(table, tuple(rows[0])), [tuple(row.values()) for row in rows])

    async def add_if_absent(self, table: Table[T], value: T) -> bool:
        row = self.row(table, value)
        return bool(await self.execute(statements.insert(table, tuple(row), conflict="ignore"), *row.values()))

    async def put(self, table: Table[T], value: T) -> None:
        row = self.row(table, value)
        await self.execute(statements.insert(table, tuple(row), conflict="replace"), *row.values())

    async def put_inside(self, table: Table[T], value: T, owner: Table[Any], owner_id: int) -> bool:
        row = self.row(table, value)
        sql = statements.insert(table, tuple(row), conflict="replace", inside=owner.name)
        return bool(await self.execute(sql, *row.values(), owner_id))

    async def update(self, table: Table[T], value: T) -> bool:
        row = self.row(table, value)
        return bool(await self.execute(statements.update(table, tuple(row)), *row.values()))

    async def remove(self, table: Table[Any], **columns: Any) -> int:
        texts, values = self._where(table, columns)
        return await self.execute(f"DELETE FROM {table.name} WHERE {' AND '.join(texts)}", *values)

    async def remove_some(self, table: Table[Any], where: Comparison, *, limit: int) -> int:
        texts, values = self._where(table, {}, where)
        ids = f"SELECT id FROM {table.name} WHERE {texts[0]} LIMIT {int(limit)}"
        return await self.execute(f"DELETE FROM {table.name} WHERE id IN ({ids})", *values)

    async def add_jobs(self, jobs: Sequence[tuple[Job, JobSpec]]) -> None:
        await self.execute_many(
            "INSERT INTO specs (id, body) VALUES ($1, $2)", [(job.id, encode(spec)) for job, spec in jobs]
        )
        await self.add_tries([(job, job.id) for job, _ in jobs])

    async def add_tries(self, jobs: Sequence[tuple[Job, JobId]]) -> None:
        """Insert new jobs, each with the id of its spec, which is the id of the job's first attempt."""
        await self._insert(JOBS, [{**self.row(JOBS, job), "spec_id": spec_id} for job, spec_id in jobs])

    def _where(
        self, table: Table[Any], columns: Mapping[str, Any], where: Comparison | None = None
    ) -> tuple[tuple[str, ...], list[Any]]:
        texts = [
            f"{self.dialect.field(name) if name in table.fields else name} = ${number}"
            for number, name in enumerate(columns, 1)
        ]
        values = list(columns.values())
        if where is not None:
            column, compared, value = where
            text = f"{column} {compared} ?"
            if compared == "in":
                kind = "text" if all(isinstance(item, str) for item in value) else "bigint"
                ((text, value),) = self.dialect.among(column, value, kind).items()
            texts.append(text.replace("?", f"${len(texts) + 1}"))
            values.append(value)
        return tuple(texts), values


class SqlDatabase(SqlRows, Database, ABC):
    """A database whose methods of `SqlRows` run each on its own. Inside `change`, the same methods of the transaction
    object run in one transaction."""
