"""Builders of domain values for tests: each fills in all fields; keyword arguments (`changes`) replace some of them."""

from collections.abc import Sequence
from typing import Any

from remuda.cell.core.jobs.environments import plan_environment
from remuda.cell.values import Artifact, Family, Job, NewJob, Pipeline, Project, Runner
from remuda.model.job import JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.model.runner import RunnerType
from remuda.pipeline import JobSpec, artifact_sources, prerequisites
from remuda.pipeline.syntax.variable_expansion import Expansion

NOW = 1_750_000_000.0
SHA = "3f786850e387550fdab836ed7e6dc881de23001b"
NO_SHA = "0" * 40


def a_project(**changes: Any) -> Project:
    values: dict[str, Any] = {"id": ProjectId(1), "path": "acme/shop", "name": "Shop", "created_at": NOW}
    return Project(**(values | changes))


def a_pipeline(**changes: Any) -> Pipeline:
    values: dict[str, Any] = {
        "id": PipelineId(1),
        "iid": 1,
        "project_id": ProjectId(1),
        "ref": "main",
        "tag": False,
        "sha": SHA,
        "before_sha": NO_SHA,
        "source": "push",
        "status": "created",
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Pipeline(**(values | changes))


def a_spec(name: str = "build", **changes: Any) -> JobSpec:
    values: dict[str, Any] = {"name": name, "stage": "test", "stage_index": 1, "script": ("true",), "line": 1}
    return JobSpec(**(values | changes))


def new_jobs(*specs: JobSpec) -> list[NewJob]:
    """Convert specs to jobs to be stored, each with the jobs that it waits for and that it gets artifacts from."""
    waits, sources = prerequisites(specs), artifact_sources(specs)
    return [
        NewJob(
            spec=spec,
            waits_for=waits[spec.name],
            artifacts_from=sources[spec.name],
            resource_group=spec.resource_group,
            environment=spec.environment.name if spec.environment else "",
            environment_plan=plan_environment(spec.environment, Expansion({}, keep_unknown=True))
            if spec.environment
            else None,
        )
        for spec in specs
    ]


def a_job(name: str = "build", **changes: Any) -> Job:
    values: dict[str, Any] = {
        "id": JobId(1),
        "pipeline_id": PipelineId(1),
        "project_id": ProjectId(1),
        "name": name,
        "stage": "test",
        "stage_index": 1,
        "ref": "main",
        "tag": False,
        "state": JobState.CREATED,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Job(**(values | changes))


def an_artifact(job_id: int = 1, kind: str = "archive", **changes: Any) -> Artifact:
    values: dict[str, Any] = {
        "job_id": JobId(job_id),
        "type": kind,
        "format": "zip",
        "filename": "artifacts.zip",
        "size": 3,
        "sha256": "",
        "blob": f"artifacts/{job_id}/{kind}",
        "created_at": NOW,
    }
    return Artifact(**(values | changes))


def a_family(jobs: Sequence[Job], **changes: Any) -> Family:
    return Family(pipeline=a_pipeline(**changes), jobs=tuple(jobs))


def a_runner(**changes: Any) -> Runner:
    """Build an instance runner, which takes jobs of all projects."""
    values: dict[str, Any] = {"id": RunnerId(1), "type": RunnerType.INSTANCE, "token_hash": "0" * 64, "created_at": NOW}
    return Runner(**(values | changes))
