"""What a trigger job asks for: from its spec and its variables to a request for another pipeline.

Decided here: what is handed on (the file's variables with their values, and on demand what the pipeline was given and
what earlier jobs left in dotenv reports), how several files make one child, and which commit a child is of. Where text
must be read first (a file in an archive, the commit of another project's branch) the caller does that. Pure;
`remuda.cell.pipelines.trigger_jobs` calls it.

Invariant: what is handed on has a limit, however variables name each other.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from remuda.cell.core.payload.predefined_variables import is_literal, of_pipeline, of_spec
from remuda.cell.core.pipelines.creation import PARENT, variables_for_expansion
from remuda.cell.errors import InvalidError
from remuda.cell.values import Job, Pipeline, Project, ProjectVariable
from remuda.cell.values.pipeline_requests import PipelineRequest, Upstream
from remuda.pipeline import ExpansionError, JobSpec, Trigger
from remuda.pipeline.rules.globs import is_glob
from remuda.pipeline.syntax.variable_expansion import Expansion

OTHER_PROJECT = "pipeline"
MAX_HANDED_ON = 1024 * 1024
_SEVERAL = "trigger:include"


class TriggerContext(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger job with all that decides about its variables."""

    job: Job
    spec: JobSpec
    trigger: Trigger
    pipeline: Pipeline
    project: Project
    variables: Sequence[ProjectVariable] = ()
    """The project's."""
    inherited: Mapping[str, str] = {}
    """Out of the dotenv reports of the jobs whose artifacts it gets."""
    public_url: str

    def expander(self) -> Callable[[str], str]:
        """Puts the values of variables into texts; InvalidError where those become too much."""
        known = {
            **of_pipeline(self.pipeline, self.project, self.public_url),
            **of_spec(self.spec, self.job.environment),
        }
        given, raw = variables_for_expansion(self.pipeline, self.variables)
        raw |= {name for name, value in known.items() if is_literal(name, value)} | set(self.spec.raw_variables)
        values = {**known, **self.spec.variables, **self.inherited, **given, **self.job.play_variables}
        expansion = Expansion(values, raw=raw, one_budget=True)

        def expand(text: str) -> str:
            try:
                return expansion.expand(text)
            except ExpansionError as error:
                raise InvalidError(f'"{text[:60]}" {error}; use fewer or shorter variables') from None

        return expand


def includes(asker: TriggerContext) -> tuple[dict[str, Any], ...]:
    """The files of a child, their names expanded."""
    expand = asker.expander()

    def expanded(value: Any) -> Any:
        if isinstance(value, list):
            return [expanded(each) for each in value]
        return expand(value) if isinstance(value, str) else value

    return tuple(
        {key: value if key == "inputs" else expanded(value) for key, value in include.items()}
        for include in asker.trigger.include
    )


def for_child(asker: TriggerContext, files: Sequence[dict[str, Any]], texts: Mapping[str, str]) -> PipelineRequest:
    """A child of the job's own pipeline. `texts` are the files that come out of archives, by their paths there."""
    pipeline = asker.pipeline
    given = {
        "project": asker.project,
        "source": PARENT,
        "ref": _whole_ref(pipeline),
        "sha": pipeline.sha,
        "before_sha": pipeline.before_sha,
        **_request_fields(asker),
    }
    first = files[0]
    inputs = {**asker.trigger.inputs, **first.get("inputs", {})}
    if len(files) > 1 or not (first.keys() & {"local", "artifact"}) or is_glob(first.get("local", "")):
        if texts:
            raise InvalidError("a file out of artifacts must be the only one of a child; let it include the others")
        own = asker.trigger.inputs
        included = [{**file, "inputs": {**own, **file.get("inputs", {})}} if own else file for file in files]
        return PipelineRequest(**given, text=json.dumps({"include": included}), file=_SEVERAL)
    if "artifact" in first:
        return PipelineRequest(**given, text=texts[first["artifact"]], file=first["artifact"], inputs=inputs)
    return PipelineRequest(**given, file=first["local"], inputs=inputs)


def for_project(asker: TriggerContext, project: Project, ref: str, sha: str) -> PipelineRequest:
    """A pipeline of another project."""
    return PipelineRequest(
        project=project, source=OTHER_PROJECT, ref=ref, sha=sha, inputs=asker.trigger.inputs, **_request_fields(asker)
    )


def _request_fields(asker: TriggerContext) -> dict[str, Any]:
    trigger, spec, pipeline = asker.trigger, asker.spec, asker.pipeline
    variables: dict[str, str] = {}
    files: frozenset[str] = frozenset()
    if trigger.forward_yaml_variables:
        expand, raw, length = asker.expander(), frozenset(spec.raw_variables), 0
        for name, value in spec.variables.items():
            variables[name] = value if name in raw else expand(value)
            length += len(variables[name])
            if length > MAX_HANDED_ON:
                raise InvalidError(
                    f"the variables that it hands on have more than {MAX_HANDED_ON} characters together; leave some "
                    'out with "inherit", or all with "trigger:forward"'
                )
    if trigger.forward_pipeline_variables:
        variables |= {**asker.inherited, **pipeline.variables}
        files = frozenset(pipeline.file_variables)
    upstream = Upstream(job=asker.job, pipeline=pipeline)
    return {"variables": variables, "file_variables": files, "upstream": upstream, "user_id": pipeline.user_id}


def _whole_ref(pipeline: Pipeline) -> str:
    if pipeline.merge_request_iid is not None:
        return pipeline.ref
    return f"refs/{'tags' if pipeline.tag else 'heads'}/{pipeline.ref}"
