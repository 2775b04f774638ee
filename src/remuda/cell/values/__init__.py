"""Immutable values that a cell stores: jobs, pipelines, projects, users, runners. Times are seconds since the epoch."""

from remuda.cell.values.jobs import UNDER_WAY, Artifact, Family, Job, NewJob, Pipeline, StepResult
from remuda.cell.values.lists import ALL_JOBS, ALL_PIPELINES, JobFilter, Page, PipelineFilter
from remuda.cell.values.projects import Project, ProjectVariable, Release, Schedule, TriggerToken, UserToken
from remuda.cell.values.runners import LEGACY, MAX_POLL_HOLD_SECONDS, Runner, RunnerManager
from remuda.cell.values.stored import MAX_PRIORITY, NAMESPACE_ID, ORGANIZATION_ID, USER_ID, Value

__all__ = [
    "ALL_JOBS",
    "ALL_PIPELINES",
    "LEGACY",
    "MAX_POLL_HOLD_SECONDS",
    "MAX_PRIORITY",
    "NAMESPACE_ID",
    "ORGANIZATION_ID",
    "UNDER_WAY",
    "USER_ID",
    "Artifact",
    "Family",
    "Job",
    "JobFilter",
    "NewJob",
    "Page",
    "Pipeline",
    "PipelineFilter",
    "Project",
    "ProjectVariable",
    "Release",
    "Runner",
    "RunnerManager",
    "Schedule",
    "StepResult",
    "TriggerToken",
    "UserToken",
    "Value",
]
