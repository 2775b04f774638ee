"""Which variables a job has, and whose value wins.

Decided here: the order, from the weakest: predefined, the file's (with the workflow's, the job's, the matrix's and the
rule's, which the compiler has put together), those that earlier jobs left in dotenv reports, the cell's, the groups'
from the outermost to the nearest, the project's (of several of one owner the one for the job's environment), those the
pipeline was started with, those given to the person's play of a manual job. Tokens that the file asks for stand above
all. `$NAME` in values is left alone, because expansion is the runner's work; what the cell itself must know (the name
of a release, whose artifacts) is expanded with `expansion`. Called by `core.payload` and whoever acts for a job.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from remuda.cell.core.jobs.stuck_jobs import timeout_of
from remuda.cell.core.payload.predefined_variables import is_literal, of_job, of_pipeline
from remuda.cell.values import Job, Pipeline, Project, ProjectVariable, Runner
from remuda.pipeline import JobSpec
from remuda.pipeline.predefined_variables import is_predefined
from remuda.pipeline.syntax.variable_expansion import Expansion
from remuda.wire.runner_api import Variable


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides about a job's variables."""

    job: Job
    spec: JobSpec
    pipeline: Pipeline
    project: Project
    variables: Sequence[ProjectVariable] = ()
    """Those that people keep, the stronger ones last (`applicable`)."""
    runner: Runner
    inherited: Mapping[str, str] = {}
    """Out of the dotenv reports of the jobs whose artifacts it gets."""
    public_url: str

    @property
    def timeout(self) -> int:
        """How many seconds the job may run."""
        return timeout_of(self.job, self.project, self.runner)


def scope_fits(scope: str, environment: str) -> bool:
    """Whether a variable with this scope is for jobs of this environment; `*` stands for any text."""
    if scope == "*":
        return True
    return bool(environment) and re.fullmatch(".*".join(map(re.escape, scope.split("*"))), environment) is not None


def _precision(scope: str) -> tuple[bool, int]:
    """How well a scope that fits does so: one without `*` best, else the one that says most."""
    return "*" not in scope, len(scope.replace("*", ""))


def applicable(
    variables: Iterable[ProjectVariable], *, group_ids: Sequence[int], environment: str
) -> list[ProjectVariable]:
    """Of what the cell, the project's groups (the nearest first) and the project keep, what is for a job, the stronger
    ones last; which of them it really gets depends on whether its ref is protected, too."""

    def strength(variable: ProjectVariable) -> tuple[int, tuple[bool, int]]:
        if variable.project_id:
            owner = len(group_ids) + 1
        else:
            owner = len(group_ids) - group_ids.index(variable.group_id) if variable.group_id else 0
        return owner, _precision(variable.environment_scope)

    fitting = (one for one in variables if scope_fits(one.environment_scope, environment))
    return sorted(fitting, key=strength)


def cell_variables(context: JobContext) -> list[Variable]:
    """What the cell itself gives."""
    own = of_job(
        job=context.job,
        spec=context.spec,
        project=context.project,
        runner=context.runner,
        public_url=context.public_url,
        timeout=context.timeout,
    )
    return list(
        {
            **_of_pipeline(_Same(context.pipeline), _Same(context.project), context.public_url),
            **_variables(own),
        }.values()
    )


class _Same(NamedTuple):
    """A value that is told from others by being that very one: to compare two takes as long as what is remembered."""

    value: Any

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


@lru_cache(maxsize=64)
def _of_pipeline(pipeline: _Same, project: _Same, public_url: str) -> Mapping[str, Variable]:
    """The same for all jobs of a pipeline, which are handed out one after the other; nobody changes it."""
    return _variables(of_pipeline(pipeline.value, project.value, public_url))


def _variables(values: Mapping[str, str]) -> dict[str, Variable]:
    return {
        key: Variable(key=key, value=value, public=True, raw="$" in value and is_literal(key, value))
        for key, value in values.items()
    }


def user_variables(context: JobContext) -> list[Variable]:
    """What people gave, and earlier jobs; the stronger ones last."""
    raw, files = set(context.spec.raw_variables), set(context.pipeline.file_variables)
    return [
        *(Variable(key=key, value=value, public=True, raw=key in raw) for key, value in context.spec.variables.items()),
        *(Variable(key=key, value=value) for key, value in context.inherited.items()),
        *(
            Variable(key=each.key, value=each.value, masked=each.masked, file=each.file, raw=each.raw)
            for each in context.variables
            if context.pipeline.protected or not each.protected
        ),
        *(Variable(key=key, value=value, file=key in files) for key, value in context.pipeline.variables.items()),
        *(Variable(key=key, value=value) for key, value in context.job.play_variables.items()),
    ]


def find_overridden(ours: Iterable[Variable], theirs: Iterable[Variable]) -> dict[str, str | None]:
    """The names of predefined variables that people have set, with the cell's own value of each; None: it has none.
    A runner gives the cell's values to steps that a policy inserts."""
    names = {variable.key for variable in theirs if is_predefined(variable.key)}
    if not names:
        return {}
    return dict.fromkeys(sorted(names)) | {variable.key: variable.value for variable in ours if variable.key in names}


def last_wins(variables: Iterable[Variable]) -> list[Variable]:
    """One of each name."""
    return list({variable.key: variable for variable in variables}.values())


def expansion(variables: Iterable[Variable]) -> Expansion:
    """For texts that the cell itself must read. A variable that is a file counts as not there: its path is unknown."""
    known = [variable for variable in last_wins(variables) if not variable.file]
    raw = frozenset(variable.key for variable in known if variable.raw)
    return Expansion({variable.key: variable.value for variable in known}, raw=raw)
