"""The setting `ci_config_path`: which pipeline file a request gets."""

import json

import pytest
from msgspec.structs import replace

from remuda.cell.core.pipelines.config_path import check_config_path, with_config_path
from remuda.cell.errors import InvalidError
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.testing.builders import a_project


def a_request(path: str, **fields: object) -> PipelineRequest:
    request = PipelineRequest(
        project=replace(a_project(), ci_config_path=path), source="push", ref="refs/heads/main", sha="a", user_id=1
    )
    return replace(request, **fields)


def test_a_path_in_the_repository() -> None:
    assert with_config_path(a_request("")).file == ".gitlab-ci.yml"
    request = with_config_path(a_request("ci/main.yml"))
    assert (request.file, request.text) == ("ci/main.yml", None)


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("a/b.yml@acme/ci", {"project": "acme/ci", "file": "/a/b.yml"}),
        ("/b.yml@acme/ci:v1", {"project": "acme/ci", "file": "/b.yml", "ref": "v1"}),
        ("https://x.org/ci.yml", {"remote": "https://x.org/ci.yml"}),
    ],
)
def test_a_file_from_elsewhere_is_included(path: str, include: dict[str, str]) -> None:
    check_config_path(path)
    request = with_config_path(a_request(path))
    assert request.file == path
    assert json.loads(request.text or "") == {"include": [include]}
    with_inputs = with_config_path(a_request(path, inputs={"level": 3}))
    assert json.loads(with_inputs.text or "") == {"include": [{**include, "inputs": {"level": 3}}]}
    assert with_inputs.inputs == {}


def test_a_request_with_a_file_of_its_own_and_a_child_pipeline_stay_unchanged() -> None:
    for fields in ({"text": "job: {}"}, {"file": "other.yml"}, {"source": "parent_pipeline"}):
        request = a_request("ci/main.yml", **fields)
        assert with_config_path(request) == request


@pytest.mark.parametrize("path", ["../x.yml", "x@y@z", "https://user@x.org/a", "a\nb", "x" * 300, "@acme/ci"])
def test_invalid_settings(path: str) -> None:
    with pytest.raises(InvalidError):
        check_config_path(path)
