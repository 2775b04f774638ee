"""Who may call an endpoint. Every endpoint declares an `Access`: the kind of caller and, for a person, the access level
that they need in the project, group, job, pipeline or runner in the path. `admission` checks people, by their personal
token, before the handler runs; endpoints for runners, jobs, triggers and git check the token in the handler."""

from enum import Enum

import msgspec

from remuda.cell.values.people import Level


class Kind(Enum):
    """Kind of caller that an endpoint admits and, for people, the object in the path where their level counts."""

    OPEN = "everybody"
    """Everybody, without a token."""
    RUNNER = "runner"
    """A runner, or the holder of a registration token. The handler checks the token (body or RUNNER-TOKEN)."""
    JOB = "job"
    """A job. The handler checks its token."""
    TRIGGER = "trigger token or job"
    """A holder of a trigger token, or a job. The handler checks the token in the parameters."""
    GIT = "user or job by HTTP Basic"
    """A person or a job. The handler checks the token, which is usually the password of HTTP Basic."""
    USER = "user"
    """Any person. The handler shows or changes only what that person may see or change."""
    ADMINISTRATOR = "administrator"
    PROJECT = "in the project"
    """A person with a level in the project `{id}`."""
    GROUP = "in the group"
    """A person with a level in the group `{id}`."""
    JOB_NUMBER = "in the job's project"
    """A person with a level in the project of the job `{job_id}`."""
    PIPELINE_NUMBER = "in the pipeline's project"
    RUNNER_NUMBER = "for the runner"
    """A person who may see the runner `{runner_id}`, or manage it."""


class Access(msgspec.Struct, frozen=True):
    """Who may call an endpoint: the kind of caller, the lowest access level, and the accepted token scopes."""

    kind: Kind
    level: int = 0
    scopes: frozenset[str] = frozenset()
    """Token scopes that suffice besides `api` (and besides `read_api` for GET and HEAD)."""
    or_job: str = ""
    """If not empty, jobs may also call it, with a job token that has this scope (see `in_project` and `of_job`)."""

    def with_scopes(self, *scopes: str) -> "Access":
        """Return a copy that also accepts tokens with one of these scopes, besides those accepted so far."""
        return msgspec.structs.replace(self, scopes=self.scopes | set(scopes))

    def __str__(self) -> str:
        """Describe the access in words for the HTTP reference, for example `developer in the project or job`."""
        if self.kind is Kind.RUNNER_NUMBER:
            return "user who may manage it" if self.level else "user who may see it"
        if self.kind is Kind.GROUP and not self.level:
            return "user who may see it"
        level = f"{Level(self.level).name.lower()} " if self.level else ""
        return f"{level}{self.kind.value}{' or job' if self.or_job else ''}"


OPEN = Access(Kind.OPEN)
RUNNER = Access(Kind.RUNNER)
JOB = Access(Kind.JOB)
TRIGGER = Access(Kind.TRIGGER)
GIT = Access(Kind.GIT)
USER = Access(Kind.USER)
ADMINISTRATOR = Access(Kind.ADMINISTRATOR)
SEES_RUNNER = Access(Kind.RUNNER_NUMBER)
MANAGES_RUNNER = Access(Kind.RUNNER_NUMBER, Level.MAINTAINER, frozenset({"manage_runner"}))


def in_project(level: Level, *, or_job: str = "") -> Access:
    """Access for people with at least this level in the project that `{id}` in the path names. `or_job`, if not empty:
    also for jobs of that project whose job token has this scope."""
    return Access(Kind.PROJECT, level, or_job=or_job)


def in_group(level: Level | int) -> Access:
    """Access for people with at least this level in the group `{id}` of the path; 0: all who may see the group."""
    return Access(Kind.GROUP, level)


def of_job(level: Level, *, or_job: str = "") -> Access:
    """Access for people with at least this level in the project of the job `{job_id}`. `or_job`: job tokens are
    admitted, too; the handler must check that they have this scope, and that their job may access this job."""
    return Access(Kind.JOB_NUMBER, level, or_job=or_job)


def of_pipeline(level: Level) -> Access:
    """Access for people with at least this level in the project of the pipeline `{pipeline_id}` in the path."""
    return Access(Kind.PIPELINE_NUMBER, level)
