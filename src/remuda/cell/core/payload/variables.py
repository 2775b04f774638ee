"""Variables of a job and their precedence. From weakest to strongest: predefined variables; those of the CI file;
dotenv reports of earlier jobs; the cell; groups from the outermost to the nearest; the project; those the pipeline was
started with; those a user gave when starting a manual job; identity tokens. Of several variables of one owner with the
same name, the one with the most specific environment scope wins. The runner replaces `$NAME` in values."""

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
    """A job with all stored values that are needed to compute its variables and its payload."""

    job: Job
    spec: JobSpec
    pipeline: Pipeline
    project: Project
    variables: Sequence[ProjectVariable] = ()
    """Stored variables, the stronger ones last (see `applicable`)."""
    runner: Runner
    inherited: Mapping[str, str] = {}
    """From the dotenv reports of the jobs whose artifacts it gets."""
    public_url: str

    @property
    def timeout(self) -> int:
        return timeout_of(self.job, self.project, self.runner)


def scope_fits(scope: str, environment: str) -> bool:
    """Return whether a variable with this environment scope applies to an environment; `*` matches any text."""
    if scope == "*":
        return True
    return bool(environment) and re.fullmatch(".*".join(map(re.escape, scope.split("*"))), environment) is not None


def _precision(scope: str) -> tuple[bool, int]:
    """Return a sort key for matching environment scopes. The last one wins: one without `*`, otherwise the longest."""
    return "*" not in scope, len(scope.replace("*", ""))


def applicable(
    variables: Iterable[ProjectVariable], *, group_ids: Sequence[int], environment: str
) -> list[ProjectVariable]:
    """Return the variables that apply to jobs of an environment, sorted so that of two with the same name the later one
    wins. Protected variables are included. `group_ids` are the groups of the project, the nearest first."""

    def strength(variable: ProjectVariable) -> tuple[int, tuple[bool, int]]:
        if variable.project_id:
            owner = len(group_ids) + 1
        else:
            owner = len(group_ids) - group_ids.index(variable.group_id) if variable.group_id else 0
        return owner, _precision(variable.environment_scope)

    fitting = (variable for variable in variables if scope_fits(variable.environment_scope, environment))
    return sorted(fitting, key=strength)


def cell_variables(context: JobContext) -> list[Variable]:
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
    """A cache key that is compared by identity: comparing two pipelines takes as long as computing their variables."""

    value: Any

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


@lru_cache(maxsize=64)
def _of_pipeline(pipeline: _Same, project: _Same, public_url: str) -> Mapping[str, Variable]:
    """Return the predefined variables that all jobs of a pipeline share. Cached: callers must not change the result."""
    return _variables(of_pipeline(pipeline.value, project.value, public_url))


def _variables(values: Mapping[str, str]) -> dict[str, Variable]:
    return {
        key: Variable(key=key, value=value, public=True, raw="$" in value and is_literal(key, value))
        for key, value in values.items()
    }


def user_variables(context: JobContext) -> list[Variable]:
    """Return all variables of a job that are not predefined; of two with the same name the later one wins. Protected
    variables are left out unless the ref is protected."""
    raw, files = set(context.spec.raw_variables), set(context.pipeline.file_variables)
    return [
        *(Variable(key=key, value=value, public=True, raw=key in raw) for key, value in context.spec.variables.items()),
        *(Variable(key=key, value=value) for key, value in context.inherited.items()),
        *(
            Variable(
                key=variable.key, value=variable.value, masked=variable.masked, file=variable.file, raw=variable.raw
            )
            for variable in context.variables
            if context.pipeline.protected or not variable.protected
        ),
        *(Variable(key=key, value=value, file=key in files) for key, value in context.pipeline.variables.items()),
        *(Variable(key=key, value=value) for key, value in context.job.play_variables.items()),
    ]


def find_overridden(ours: Iterable[Variable], theirs: Iterable[Variable]) -> dict[str, str | None]:
    """Return the predefined variables that `theirs`, set by users, override, with the values in `ours` (None: the cell
    set none). A runner gives the cell's values to steps that a step policy adds to the job."""
    names = {variable.key for variable in theirs if is_predefined(variable.key)}
    if not names:
        return {}
    return dict.fromkeys(sorted(names)) | {variable.key: variable.value for variable in ours if variable.key in names}


def last_wins(variables: Iterable[Variable]) -> list[Variable]:
    """Return one variable per name: the last one in `variables`."""
    return list({variable.key: variable for variable in variables}.values())


def expansion(variables: Iterable[Variable]) -> Expansion:
    """Return an object that replaces `$NAME` in texts by the values of these variables. File variables are left out:
    their values are paths on the runner, which the cell does not know."""
    usable = [variable for variable in last_wins(variables) if not variable.file]
    raw = frozenset(variable.key for variable in usable if variable.raw)
    return Expansion({variable.key: variable.value for variable in usable}, raw=raw)
