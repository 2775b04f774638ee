"""Builds the request for a downstream pipeline from the definition and the variables of a trigger job. As
`trigger:forward` says, the job passes on its variables from the CI file (InvalidError if they have more than
`MAX_HANDED_ON` characters together), and those of its pipeline and of dotenv reports."""

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
from remuda.pipeline.rules.globs import is_include_glob
from remuda.pipeline.syntax.variable_expansion import Expansion

OTHER_PROJECT = "pipeline"
MAX_HANDED_ON = 1024 * 1024
_SEVERAL = "trigger:include"


class TriggerContext(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger job, and all stored values that its variables are computed from."""

    job: Job
    spec: JobSpec
    trigger: Trigger
    pipeline: Pipeline
    project: Project
    variables: Sequence[ProjectVariable] = ()
    """Variables of the project, its groups and the cell, the stronger ones last."""
    inherited: Mapping[str, str] = {}
    """From the dotenv reports of the jobs whose artifacts it gets."""
    public_url: str

    def expander(self) -> Callable[[str], str]:
        """Return a function that expands `$NAME` in texts. It raises InvalidError for too many or too long values."""
        predefined = {
            **of_pipeline(self.pipeline, self.project, self.public_url),
            **of_spec(self.spec, self.job.environment),
        }
        own, raw = variables_for_expansion(self.pipeline, self.variables)
        raw |= {name for name, value in predefined.items() if is_literal(name, value)} | set(self.spec.raw_variables)
        values = {**predefined, **self.spec.variables, **self.inherited, **own, **self.job.play_variables}
        expansion = Expansion(values, raw=raw, one_budget=True)

        def expand(text: str) -> str:
            try:
                return expansion.expand(text)
            except ExpansionError as error:
                raise InvalidError(f'"{text[:60]}" {error}; use fewer or shorter variables') from None

        return expand


def includes(context: TriggerContext) -> tuple[dict[str, Any], ...]:
    """Return the `trigger:include` entries of a trigger job, with variables replaced except in `inputs`."""
    expand = context.expander()

    def expand_all(value: Any) -> Any:
        if isinstance(value, list):
            return [expand_all(item) for item in value]
        return expand(value) if isinstance(value, str) else value

    return tuple(
        {key: value if key == "inputs" else expand_all(value) for key, value in include.items()}
        for include in context.trigger.include
    )


def for_child(context: TriggerContext, files: Sequence[dict[str, Any]], texts: Mapping[str, str]) -> PipelineRequest:
    """Return the request for a child pipeline from `files`, its `trigger:include` entries. `texts` has the content of
    files from artifacts, by path. Raises InvalidError if such a file is not the only one."""
    pipeline = context.pipeline
    fields = {
        "project": context.project,
        "source": PARENT,
        "ref": _whole_ref(pipeline),
        "sha": pipeline.sha,
        "before_sha": pipeline.before_sha,
        **_request_fields(context),
    }
    first = files[0]
    inputs = {**context.trigger.inputs, **first.get("inputs", {})}
    if len(files) > 1 or not (first.keys() & {"local", "artifact"}) or is_include_glob(first.get("local", "")):
        if texts:
            raise InvalidError(
                "a file from artifacts must be the only file of a child pipeline; let it include the others"
            )
        own = context.trigger.inputs
        included = [{**file, "inputs": {**own, **file.get("inputs", {})}} if own else file for file in files]
        return PipelineRequest(**fields, text=json.dumps({"include": included}), file=_SEVERAL)
    if "artifact" in first:
        return PipelineRequest(**fields, text=texts[first["artifact"]], file=first["artifact"], inputs=inputs)
    return PipelineRequest(**fields, file=first["local"], inputs=inputs)


def for_project(context: TriggerContext, project: Project, ref: str, sha: str) -> PipelineRequest:
    """Return the request for a downstream pipeline in another project, for the commit `sha` of the ref `ref`."""
    return PipelineRequest(
        project=project,
        source=OTHER_PROJECT,
        ref=ref,
        sha=sha,
        inputs=context.trigger.inputs,
        **_request_fields(context),
    )


def _request_fields(context: TriggerContext) -> dict[str, Any]:
    trigger, spec, pipeline = context.trigger, context.spec, context.pipeline
    variables: dict[str, str] = {}
    files: frozenset[str] = frozenset()
    if trigger.forward_yaml_variables:
        expand, raw, length = context.expander(), frozenset(spec.raw_variables), 0
        for name, value in spec.variables.items():
            variables[name] = value if name in raw else expand(value)
            length += len(variables[name])
            if length > MAX_HANDED_ON:
                raise InvalidError(
                    f"the variables that it forwards have more than {MAX_HANDED_ON} characters together; leave some "
                    'out with "inherit", or all with "trigger:forward"'
                )
    if trigger.forward_pipeline_variables:
        variables |= {**context.inherited, **pipeline.variables}
        files = frozenset(pipeline.file_variables)
    upstream = Upstream(job=context.job, pipeline=pipeline)
    return {"variables": variables, "file_variables": files, "upstream": upstream, "user_id": pipeline.user_id}


def _whole_ref(pipeline: Pipeline) -> str:
    if pipeline.merge_request_iid is not None:
        return pipeline.ref
    return f"refs/{'tags' if pipeline.tag else 'heads'}/{pipeline.ref}"
