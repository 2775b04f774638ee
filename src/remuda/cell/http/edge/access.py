"""Who may call an endpoint: declared with each one, so that none can forget it. `admission` sees to it.

Pure. A caller is a person (with a personal token), a runner, a job, or nobody. For a person the declaration names what
the path is about (a project, a group, a job, a pipeline, a runner) and the level that is needed there.
"""

from enum import Enum

import msgspec

from remuda.cell.values.people import Level


class Kind(Enum):
    """Who is asked, and about what."""

    OPEN = "open"
    """Nobody."""
    RUNNER = "runner"
    """A runner, or whoever has a registration token: the handler asks for the token in the body."""
    JOB = "job"
    """A job: the handler asks for its token."""
    TRIGGER = "trigger token or job"
    """The handler asks for the token in the body."""
    GIT = "user or job by HTTP Basic"
    """The handler asks for the token that stands for a password."""
    USER = "user"
    """Any person; the handler shows or changes only what is that person's."""
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
    """What an endpoint asks of its caller."""

    kind: Kind
    level: int = 0
    scopes: frozenset[str] = frozenset()
    """Scopes of a token that are enough beside `api` (and `read_api`, where nothing is changed)."""
    or_job: str = ""
    """A job of the same project may call it too, with its own token, which needs this scope."""

    def with_scopes(self, *scopes: str) -> "Access":
        """The same, open to tokens with one of these scopes too."""
        return msgspec.structs.replace(self, scopes=self.scopes | set(scopes))

    def __str__(self) -> str:
        """For people, as in the reference."""
        if self.kind is Kind.RUNNER_NUMBER:
            return "who manages it" if self.level else "who sees it"
        if self.kind is Kind.GROUP and not self.level:
            return "who sees it"
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
    """A person with at least this level in the project that the path names."""
    return Access(Kind.PROJECT, level, or_job=or_job)


def in_group(level: Level | int) -> Access:
    """A person with at least this level in the group that the path names; 0: who may see it."""
    return Access(Kind.GROUP, level)


def of_job(level: Level, *, or_job: str = "") -> Access:
    """A person with at least this level in the project of the job that the path names by its number alone."""
    return Access(Kind.JOB_NUMBER, level, or_job=or_job)


def of_pipeline(level: Level) -> Access:
    """The same of a pipeline."""
    return Access(Kind.PIPELINE_NUMBER, level)
