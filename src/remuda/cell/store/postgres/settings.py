"""The part of the PostgreSQL store that keeps keys, settings, runners, and what jobs leave."""

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace as replaced

from remuda.cell.core.jobs.result_limits import select_results
from remuda.cell.errors import ConflictError, NotFoundError
from remuda.cell.store.ports import Leaves
from remuda.cell.store.postgres import rows
from remuda.cell.store.postgres.access import draw, without_nul
from remuda.cell.store.postgres.audit import PostgresAudit
from remuda.cell.store.postgres.people import PostgresPeople
from remuda.cell.store.postgres.pool import Connection
from remuda.cell.store.postgres.starts import PostgresStarts
from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.values import (
    Artifact,
    Job,
    Runner,
    RunnerManager,
    StepResult,
)
from remuda.model.job import JobId, ProjectId, RunnerId

_PUT_SETTING = "INSERT INTO settings VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
RUNNERS = "SELECT token_hash, body FROM runners WHERE token_hash = ANY($1::text[])"
_SETTINGS_LOCK = 7_236_389
"""The first half of an advisory lock; the second is the setting."""


class PostgresKeeping(PostgresStarts, PostgresPeople, PostgresAudit):
    """Keys, settings, runners, results, artifacts."""

    async def load_signing_keys(self) -> Mapping[str, bytes]:
        found = await self._rows("SELECT kid, pem FROM signing_keys ORDER BY number")
        return {row[0]: row[1] for row in found}

    async def add_signing_key(self, kid: str, pem: bytes) -> None:
        async def add(db: Connection) -> None:
            if await db.fetchval("SELECT 1 FROM signing_keys WHERE kid = $1", kid):
                raise ConflictError(f"there is a signing key {kid} already")
            sql = "INSERT INTO signing_keys SELECT coalesce(max(number), 0) + 1, $1, $2 FROM signing_keys"
            await db.execute(sql, kid, pem)

        await self._change(add)

    async def remove_signing_key(self, kid: str) -> None:
        async def remove(db: Connection) -> None:
            await db.execute("DELETE FROM signing_keys WHERE kid = $1", kid)

        await self._change(remove)

    async def load_setting(self, name: str) -> str | None:
        found = await self._rows("SELECT value FROM settings WHERE name = $1", name)
        return str(found[0][0]) if found else None

    async def put_setting(self, name: str, value: str) -> None:
        await self._run(_PUT_SETTING, name, value)

    async def load_settings(self, names: Collection[str]) -> Mapping[str, str]:
        found: Mapping[str, str] = await self._asked_with_others("settings", self._read_settings, tuple(names))
        return found

    async def _read_settings(self, asked: Sequence[tuple[str, ...]]) -> Mapping[tuple[str, ...], Mapping[str, str]]:
        names = {name for one in asked for name in one}
        sql = "SELECT name, value FROM settings WHERE name = ANY($1::text[])"
        found = await self._rows(sql, list(names), keyed=True)
        values = {row[0]: row[1] for row in found}
        return {one: {name: values[name] for name in one if name in values} for one in asked}

    async def change_setting(self, name: str, decide: Callable[[str | None], str | None]) -> str | None:
        async def change(db: Connection) -> str | None:
            # There may be no row to lock.
            await db.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _SETTINGS_LOCK, name)
            changed = decide(await db.fetchval("SELECT value FROM settings WHERE name = $1", name))
            if changed is not None:
                await db.execute(_PUT_SETTING, name, changed)
            return changed

        return await self._change(change)

    # what refs were acted on

    async def load_seen_refs(self, project_id: ProjectId) -> Mapping[str, str]:
        found = await self._rows("SELECT ref, sha FROM seen_refs WHERE project_id = $1", project_id)
        return {row[0]: row[1] for row in found}

    async def is_ref_seen(self, project_id: ProjectId, ref: str) -> bool:
        sql = "SELECT 1 FROM seen_refs WHERE project_id = $1 AND ref = $2"
        return bool(await self._rows(sql, project_id, without_nul(ref)))

    async def put_seen_refs(self, project_id: ProjectId, refs: Mapping[str, str | None]) -> None:
        seen = sorted((ref, sha) for ref, sha in refs.items() if sha is not None)
        gone = sorted(ref for ref, sha in refs.items() if sha is None)

        async def see(db: Connection) -> None:
            await db.execute("DELETE FROM seen_refs WHERE project_id = $1 AND ref = ANY($2::text[])", project_id, gone)
            await db.executemany(rows.SEE_REF, [(project_id, *one) for one in seen])

        await self._change(see)

    # runners

    async def add_runner(self, runner: Runner) -> Runner:
        async def add(db: Connection) -> Runner:
            if await db.fetchval("SELECT 1 FROM runners WHERE token_hash = $1", runner.token_hash):
                raise ConflictError("there is a runner with this token already")
            added = replaced(runner, id=RunnerId((await draw(db, "runners"))[0]))
            sql = "INSERT INTO runners (id, token_hash, body) VALUES ($1, $2, $3)"
            await db.execute(sql, added.id, added.token_hash, encode(added))
            return added

        return await self._change(add)

    async def load_runner(self, runner_id: RunnerId) -> Runner | None:
        return await self._one(Runner, "SELECT body FROM runners WHERE id = $1", runner_id)

    async def find_runner(self, token_hash: str) -> Runner | None:
        return await self._keyed(Runner, RUNNERS, token_hash)

    async def put_runner(self, runner: Runner) -> None:
        sql = "UPDATE runners SET token_hash = $1, body = $2 WHERE id = $3"
        if not await self._run(sql, runner.token_hash, encode(runner), runner.id):
            raise NotFoundError(f"there is no runner {runner.id}")

    async def remove_runner(self, runner_id: RunnerId) -> bool:
        return bool(await self._run("DELETE FROM runners WHERE id = $1", runner_id))

    async def put_manager(self, manager: RunnerManager) -> None:
        sql = (
            "INSERT INTO managers (runner_id, system_id, body) SELECT id, $2, $3 FROM runners WHERE id = $1"
            " ON CONFLICT (runner_id, system_id) DO UPDATE SET body = excluded.body"
        )
        if not await self._run(sql, manager.runner_id, manager.system_id, encode(manager)):
            raise NotFoundError(f"there is no runner {manager.runner_id}")

    async def load_manager(self, runner_id: RunnerId, system_id: str) -> RunnerManager | None:
        sql = "SELECT body FROM managers WHERE runner_id = $1 AND system_id = $2"
        return await self._one(RunnerManager, sql, runner_id, system_id)

    async def list_managers(self, runner_id: RunnerId) -> Sequence[RunnerManager]:
        sql = "SELECT body FROM managers WHERE runner_id = $1 ORDER BY system_id"
        return await self._all(RunnerManager, sql, runner_id)

    async def list_all_managers(self) -> Sequence[RunnerManager]:
        return await self._all(RunnerManager, "SELECT body FROM managers ORDER BY runner_id, system_id")

    async def remove_manager(self, runner_id: RunnerId, system_id: str) -> bool:
        sql = "DELETE FROM managers WHERE runner_id = $1 AND system_id = $2"
        return bool(await self._run(sql, runner_id, system_id))

    # results and artifacts

    async def add_results(self, job_id: JobId, results: Sequence[StepResult], *, limit_bytes: int) -> int:
        async def add(db: Connection) -> int:
            await rows.check_job(db, job_id)
            sql = "SELECT body FROM results WHERE job_id = $1 ORDER BY seq DESC LIMIT 1"
            last = await db.fetchval(sql, job_id)
            new, following = select_results(decode(StepResult, last) if last else None, results, limit_bytes)
            if new:
                values = [(job_id, result.seq, encode(result)) for result in new]
                await db.executemany("INSERT INTO results (job_id, seq, body) VALUES ($1, $2, $3)", values)
            return following

        return await self._change(add)

    async def list_results(self, job_id: JobId, *, after: int = 0, limit: int | None = None) -> Sequence[StepResult]:
        sql = "SELECT body FROM results WHERE job_id = $1 AND seq > $2 ORDER BY seq LIMIT $3"
        return await self._all(StepResult, sql, job_id, after, limit)

    async def put_artifact(self, artifact: Artifact) -> Artifact:
        async def put(db: Connection) -> Artifact:
            await rows.check_job(db, artifact.job_id)
            sql = "SELECT body FROM artifacts WHERE job_id = $1 AND type = $2"
            if body := await db.fetchval(sql, artifact.job_id, artifact.type):
                return decode(Artifact, body)
            await db.execute(rows.PUT_ARTIFACT, *rows.artifact_values(artifact))
            return artifact

        return await self._change(put)

    async def list_artifacts(self, job_id: JobId) -> Sequence[Artifact]:
        return await self._all(Artifact, rows.ARTIFACTS, job_id)

    async def change_artifacts(
        self, job_id: JobId, decide: Callable[[Job, Sequence[Artifact]], Leaves | None]
    ) -> Sequence[Artifact]:
        async def change(db: Connection) -> Sequence[Artifact]:
            found = await db.fetchval("SELECT body FROM jobs WHERE id = $1 FOR UPDATE", job_id)
            if found is None:
                return ()
            had = [decode(Artifact, row[0]) for row in await db.fetch(rows.ARTIFACTS, job_id)]
            leaves = decide(decode(Job, found), had)
            if leaves is None:
                return ()
            await rows.update_jobs(db, [leaves.job], {job_id: found})
            kept = {artifact.type: artifact for artifact in leaves.artifacts}
            gone = [artifact for artifact in had if artifact.type not in kept]
            sql = "DELETE FROM artifacts WHERE job_id = $1 AND type = ANY($2::text[])"
            await db.execute(sql, job_id, [artifact.type for artifact in gone])
            still = [rows.artifact_values(kept[artifact.type]) for artifact in had if artifact.type in kept]
            await db.executemany(rows.PUT_ARTIFACT, still)
            return gone

        return await self._change(change)

    async def list_due_artifacts(self, now: float, *, limit: int) -> Sequence[Artifact]:
        sql = "SELECT body FROM artifacts WHERE look_at <= $1 ORDER BY look_at, job_id, type LIMIT $2"
        return await self._all(Artifact, sql, now, limit)
