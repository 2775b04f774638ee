"""Requests for downstream pipelines: included files, inputs and forwarded variables."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from remuda.cell.core.pipelines.downstream import TriggerContext, for_child, for_project, includes
from remuda.cell.errors import InvalidError
from remuda.cell.values import ProjectVariable
from remuda.model.job import ProjectId
from remuda.pipeline import Trigger
from remuda.testing.builders import NO_SHA, SHA, a_job, a_pipeline, a_project, a_spec


def a_trigger_context(*, pipeline: dict[str, Any] | None = None, **trigger: Any) -> TriggerContext:
    return TriggerContext(
        job=a_job("go", is_trigger=True, play_variables={"PLAYED": "p"}),
        spec=a_spec("go", variables={"DIR": "ci/$CI_JOB_NAME", "LITERAL": "$DIR"}, raw_variables=("LITERAL",)),
        trigger=Trigger(**trigger),
        pipeline=a_pipeline(
            **({"variables": {"GIVEN": "g", "CERT": "pem"}, "file_variables": ("CERT",)} | (pipeline or {}))
        ),
        project=a_project(),
        variables=[ProjectVariable(project_id=ProjectId(1), key="HOST", value="$DIR.example")],
        inherited={"LEFT": "l"},
        public_url="https://ci.example",
    )


def test_names_are_expanded_with_all_variables_of_the_job() -> None:
    context = a_trigger_context(
        include=({"project": "$GIVEN/$LEFT", "file": ["$DIR.yml", "$PLAYED"], "inputs": {"a": "$DIR"}},)
    )
    assert includes(context) == ({"project": "g/l", "file": ["ci/go.yml", "p"], "inputs": {"a": "$DIR"}},)
    assert context.expander()("$HOST $CI_PROJECT_PATH $LITERAL") == "ci/go.example acme/shop $DIR"


def test_a_single_local_file_is_the_pipeline_file() -> None:
    request = for_child(a_trigger_context(inputs={"a": 1, "b": 1}), [{"local": "child.yml", "inputs": {"b": 2}}], {})
    assert (request.source, request.file, request.text) == ("parent_pipeline", "child.yml", None)
    assert (request.ref, request.sha, request.before_sha) == ("refs/heads/main", SHA, NO_SHA)
    assert request.inputs == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "files", [[{"local": "a.yml"}, {"local": "b.yml"}], [{"local": "*.yml"}], [{"project": "x/y", "file": ["a.yml"]}]]
)
def test_other_files_are_included_by_a_generated_file(files: list[dict[str, Any]]) -> None:
    request = for_child(a_trigger_context(), files, {})
    assert json.loads(request.text or "") == {"include": files}
    child = for_child(a_trigger_context(inputs={"a": 1}), files, {})
    assert json.loads(child.text or "") == {"include": [{**file, "inputs": {"a": 1}} for file in files]}
    assert (request.inputs, child.inputs) == ({}, {})


def test_an_artifact_must_be_the_only_file() -> None:
    file = {"artifact": "out/a.yml", "job": "make"}
    request = for_child(a_trigger_context(), [file], {"out/a.yml": "a: {script: x}"})
    assert (request.file, request.text) == ("out/a.yml", "a: {script: x}")
    with pytest.raises(InvalidError, match="the only file"):
        for_child(a_trigger_context(), [file, {"local": "b.yml"}], {"out/a.yml": ""})


@pytest.mark.parametrize(
    ("pipeline", "ref"),
    [
        ({"ref": "v1", "tag": True}, "refs/tags/v1"),
        ({"ref": "refs/merge-requests/3/head", "merge_request_iid": 3}, "refs/merge-requests/3/head"),
    ],
)
def test_a_child_has_the_ref_of_its_parent(pipeline: dict[str, Any], ref: str) -> None:
    assert for_child(a_trigger_context(pipeline=pipeline), [{"local": "a.yml"}], {}).ref == ref


def test_forwarded_variables() -> None:
    yaml_variables = {"DIR": "ci/go", "LITERAL": "$DIR"}
    pipeline_variables = {"LEFT": "l", "GIVEN": "g", "CERT": "pem"}
    other = a_project(id=ProjectId(2), path="acme/other")
    plain = for_project(a_trigger_context(inputs={"a": 1}), other, "refs/heads/main", SHA)
    assert (plain.source, plain.project, plain.variables, plain.inputs) == ("pipeline", other, yaml_variables, {"a": 1})
    assert plain.file_variables == frozenset()
    everything = for_project(a_trigger_context(forward_pipeline_variables=True), other, "refs/heads/main", SHA)
    assert (everything.variables, everything.file_variables) == (
        yaml_variables | pipeline_variables,
        frozenset({"CERT"}),
    )
    nothing = for_project(a_trigger_context(forward_yaml_variables=False), other, "refs/heads/main", SHA)
    assert nothing.variables == {}


def test_a_too_long_expansion_is_refused() -> None:
    context = a_trigger_context(pipeline={"variables": {"A": "$B$B", "B": "x" * 40_000}})
    with pytest.raises(InvalidError, match="longer than"):
        context.expander()("$A")


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({f"V{number}": "$A" for number in range(30)} | {"A": "x" * 50_000}, "more than 1048576 characters together"),
        ({f"V{number}": "$A" for number in range(200)} | {"A": "$B" * 100, "B": ""}, "takes too long"),
    ],
)
def test_too_large_variables_are_refused(variables: dict[str, str], reason: str) -> None:
    context = a_trigger_context()
    context = replace(context, spec=replace(context.spec, variables=variables, raw_variables=()))
    with pytest.raises(InvalidError, match=reason):
        for_project(context, context.project, "refs/heads/main", SHA)
