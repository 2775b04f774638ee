"""Reads the rows that job payloads are built from, for many jobs with one PostgreSQL statement."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from remuda.cell.store.row_bodies import decode, decode_cached
from remuda.cell.values import Job, Pipeline, Project, ProjectVariable
from remuda.cell.values.changes import PayloadParts
from remuda.model.job import JobId, PipelineId, ProjectId
from remuda.pipeline import JobSpec

T = TypeVar("T")


def select_payload_parts(first: int) -> str:
    """Return the SQL that selects the rows from which payloads of jobs are built, for five lists of keys: ids of jobs,
    pipelines, projects and groups, and names of settings. `first` is the number of its first parameter: 1 for `$1`."""
    jobs, pipelines, projects, groups = (f"ANY(${number}::bigint[])" for number in range(first, first + 4))
    return (
        "SELECT 'spec' AS kind, jobs.id, 0 AS group_id, '' AS name, specs.body"
        f" FROM jobs JOIN specs ON specs.id = jobs.spec_id WHERE jobs.id = {jobs}"
        f" UNION ALL SELECT 'pipeline', id, 0, '', body FROM pipelines WHERE id = {pipelines}"
        f" UNION ALL SELECT 'project', id, 0, '', body FROM projects WHERE id = {projects}"
        " UNION ALL SELECT 'variable', project_id, group_id, '', body FROM variables"
        f" WHERE project_id = 0 AND group_id = {groups}"
        " UNION ALL SELECT 'variable', project_id, group_id, '', body FROM variables"
        f" WHERE project_id = {projects} AND group_id = 0"
        " UNION ALL SELECT 'setting', 0, 0, name, convert_to(value, 'UTF8') FROM settings"
        f" WHERE name = ANY(${first + 4}::text[])"
    )


PAYLOAD_PARTS = select_payload_parts(1)


class PartsQuery(NamedTuple):
    """The keys (ids and setting names) of all rows that are needed to build the payload of one job."""

    job_id: JobId
    pipeline_id: PipelineId
    project_id: ProjectId
    group_ids: tuple[int, ...]
    settings: tuple[str, ...]

    @classmethod
    def of(cls, job: Job, settings: Collection[str]) -> "PartsQuery":
        # Group 0 stands for the cell.
        return cls(job.id, job.pipeline_id, job.project_id, (0, *job.group_ids), tuple(settings))


def query_values(queries: Sequence[PartsQuery]) -> tuple[list[Any], ...]:
    return (
        list({query.job_id for query in queries}),
        list({query.pipeline_id for query in queries}),
        list({query.project_id for query in queries}),
        list({group for query in queries for group in query.group_ids}),
        list({name for query in queries for name in query.settings}),
    )


def read_payload_parts(queries: Iterable[PartsQuery], rows: Iterable[Any]) -> dict[PartsQuery, PayloadParts]:
    """Return for each query the values that the payload of a job is built from. `rows` are the rows that the statement
    `PAYLOAD_PARTS` or `job_statements.LEASE_JOBS` returned for all queries together."""
    bodies: dict[tuple[str, int], Any] = {}
    variables: defaultdict[tuple[int, int], list[ProjectVariable]] = defaultdict(list)
    settings: dict[str, str] = {}
    for kind, id_, group_id, name, body in rows:
        if kind == "variable":
            variables[id_, group_id].append(decode_cached(ProjectVariable, body))
        elif kind == "setting":
            settings[name] = body.decode()
        elif kind != "stored":
            bodies[kind, id_] = body
    for owned in variables.values():
        owned.sort(key=lambda variable: (variable.key, variable.environment_scope))

    def read(kind: type[T], name: str, id_: int) -> T | None:
        body = bodies.get((name, id_))
        if body is None:
            return None
        # A spec belongs to one job only, so it is not cached.
        return decode(kind, body) if name == "spec" else decode_cached(kind, body)

    return {
        query: PayloadParts(
            spec=read(JobSpec, "spec", query.job_id),
            pipeline=read(Pipeline, "pipeline", query.pipeline_id),
            project=read(Project, "project", query.project_id),
            variables=[
                *(variable for group in sorted(set(query.group_ids)) for variable in variables.get((0, group), ())),
                *variables.get((query.project_id, 0), ()),
            ],
            settings={name: settings[name] for name in query.settings if name in settings},
        )
        for query in queries
    }
