"""Compiles the small pipeline files of `cases/*.yml` and compares each with what GitLab's documentation says.

A case has a `text`, optionally `facts`, `files` (of the repository), `projects`, `remotes`, `components` and `inputs`,
and either `graph` (jobs in order with their expected fields; `after` has the jobs that a job waits for), `pipeline`
(expected fields of the pipeline), or `mistakes` (the beginnings of all messages, in order). `warnings` has the
beginnings of all warnings; a case without it has none.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from remuda.pipeline import (
    Pipeline,
    PipelineError,
    artifact_sources,
    compile_pipeline,
    prerequisites,
)

CaseArguments = Callable[[dict[str, Any]], dict[str, Any]]

FOLDER = Path(__file__).parent / "cases"
CASES = [
    pytest.param(case, id=f"{file.stem}: {case['case']}")
    for file in sorted(FOLDER.glob("*.yml"))
    for case in yaml.safe_load(file.read_text())
]
KEYS = {"case", "text", "facts", "files", "projects", "remotes", "components", "inputs"}


def test_there_are_many_small_files() -> None:
    assert len(CASES) >= 150


@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any], case_arguments: CaseArguments) -> None:
    assert case.keys() <= KEYS | {"graph", "pipeline", "mistakes", "warnings"}
    if "mistakes" in case:
        with pytest.raises(PipelineError) as caught:
            compile_pipeline(case["text"], file="f", **case_arguments(case))
        messages = [line.removeprefix("f:") for line in str(caught.value).splitlines()]
        assert len(messages) == len(case["mistakes"]), messages
        for line, beginning in zip(messages, case["mistakes"], strict=True):
            assert line.startswith(beginning), messages
        return
    pipeline = compile_pipeline(case["text"], file="f", **case_arguments(case))
    assert msgspec.json.decode(msgspec.json.encode(pipeline), type=Pipeline) == pipeline
    warnings = [str(warning).removeprefix("f:") for warning in pipeline.warnings]
    if "warnings" not in case.get("pipeline", {}):
        assert len(warnings) == len(case.get("warnings", ())), warnings
        for line, beginning in zip(warnings, case.get("warnings", ()), strict=True):
            assert line.startswith(beginning), warnings
    whole = msgspec.to_builtins(pipeline, str_keys=True)
    for key, value in case.get("pipeline", {}).items():
        assert as_json(whole[key]) == value, key
    if "graph" in case:
        graph = case["graph"] if isinstance(case["graph"], dict) else dict.fromkeys(case["graph"])
        assert [job.name for job in pipeline.jobs] == list(graph)
        after, sources = prerequisites(pipeline.jobs), artifact_sources(pipeline.jobs)
        for job in pipeline.jobs:
            fields = as_json({**msgspec.to_builtins(job), "after": after[job.name], "artifacts_of": sources[job.name]})
            for key, value in (graph[job.name] or {}).items():
                assert fields[key] == value, f"{job.name}: {key}"


def as_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
