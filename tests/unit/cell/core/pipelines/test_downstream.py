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


def an_asker(*, pipeline: dict[str, Any] | None = None, **trigger: Any) -> TriggerContext:
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


def test_names_are_expanded_with_all_that_the_job_knows() -> None:
    asker = an_asker(include=({"project": "$GIVEN/$LEFT", "file": ["$DIR.yml", "$PLAYED"], "inputs": {"a": "$DIR"}},))
    assert includes(asker) == ({"project": "g/l", "file": ["ci/go.yml", "p"], "inputs": {"a": "$DIR"}},)
    assert asker.expander()("$HOST $CI_PROJECT_PATH $LITERAL") == "ci/go.example acme/shop $DIR"


def test_one_file_is_the_pipeline_file_itself() -> None:
    request = for_child(an_asker(inputs={"a": 1, "b": 1}), [{"local": "child.yml", "inputs": {"b": 2}}], {})
    assert (request.source, request.file, request.text) == ("parent_pipeline", "child.yml", None)
    assert (request.ref, request.sha, request.before_sha) == ("refs/heads/main", SHA, NO_SHA)
    assert request.inputs == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "files", [[{"local": "a.yml"}, {"local": "b.yml"}], [{"local": "*.yml"}], [{"project": "x/y", "file": ["a.yml"]}]]
)
def test_others_are_included_by_a_file_of_their_own(files: list[dict[str, Any]]) -> None:
    request = for_child(an_asker(), files, {})
    assert json.loads(request.text or "") == {"include": files}
    child = for_child(an_asker(inputs={"a": 1}), files, {})
    assert json.loads(child.text or "") == {"include": [{**file, "inputs": {"a": 1}} for file in files]}
    assert (request.inputs, child.inputs) == ({}, {})


def test_a_generated_file_stands_alone() -> None:
    file = {"artifact": "out/a.yml", "job": "make"}
    request = for_child(an_asker(), [file], {"out/a.yml": "a: {script: x}"})
    assert (request.file, request.text) == ("out/a.yml", "a: {script: x}")
    with pytest.raises(InvalidError, match="the only file"):
        for_child(an_asker(), [file, {"local": "b.yml"}], {"out/a.yml": ""})


@pytest.mark.parametrize(
    ("pipeline", "ref"),
    [
        ({"ref": "v1", "tag": True}, "refs/tags/v1"),
        ({"ref": "refs/merge-requests/3/head", "merge_request_iid": 3}, "refs/merge-requests/3/head"),
    ],
)
def test_a_child_is_of_the_same_ref(pipeline: dict[str, Any], ref: str) -> None:
    assert for_child(an_asker(pipeline=pipeline), [{"local": "a.yml"}], {}).ref == ref


def test_what_is_handed_on() -> None:
    own = {"DIR": "ci/go", "LITERAL": "$DIR"}
    given = {"LEFT": "l", "GIVEN": "g", "CERT": "pem"}
    other = a_project(id=ProjectId(2), path="acme/other")
    plain = for_project(an_asker(inputs={"a": 1}), other, "refs/heads/main", SHA)
    assert (plain.source, plain.project, plain.variables, plain.inputs) == ("pipeline", other, own, {"a": 1})
    assert plain.file_variables == frozenset()
    everything = for_project(an_asker(forward_pipeline_variables=True), other, "refs/heads/main", SHA)
    assert (everything.variables, everything.file_variables) == (own | given, frozenset({"CERT"}))
    nothing = for_project(an_asker(forward_yaml_variables=False), other, "refs/heads/main", SHA)
    assert nothing.variables == {}


def test_variables_that_grow_too_long() -> None:
    asker = an_asker(pipeline={"variables": {"A": "$B$B", "B": "x" * 40_000}})
    with pytest.raises(InvalidError, match="longer than"):
        asker.expander()("$A")


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({f"V{n}": "$A" for n in range(30)} | {"A": "x" * 50_000}, "more than 1048576 characters together"),
        ({f"V{n}": "$A" for n in range(200)} | {"A": "$B" * 100, "B": ""}, "takes too long"),
    ],
)
def test_variables_that_are_too_much_together(own: dict[str, str], reason: str) -> None:
    asker = an_asker()
    asker = replace(asker, spec=replace(asker.spec, variables=own, raw_variables=()))
    with pytest.raises(InvalidError, match=reason):
        for_project(asker, asker.project, "refs/heads/main", SHA)
