"""Small pipeline files with the graph that each must give, from GitLab's documented semantics: `cases/*.yml`.

A case has a `text`, maybe `facts`, `files` (of the repository), `projects`, `remotes`, `components`, `inputs`, and
either `graph` (jobs in order, each with what is expected of it; `after` is what it waits for), `pipeline` (what is
expected of the whole), or `mistakes` (how each line begins, all of them, in order).
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from remuda.pipeline import (
    Component,
    Facts,
    MemorySources,
    Pipeline,
    PipelineError,
    artifact_sources,
    compile_pipeline,
    prerequisites,
)

FOLDER = Path(__file__).parent / "cases"
CASES = [
    pytest.param(case, id=f"{file.stem}: {case['case']}")
    for file in sorted(FOLDER.glob("*.yml"))
    for case in yaml.safe_load(file.read_text())
]
KEYS = {"case", "text", "facts", "files", "projects", "remotes", "components", "inputs"}


def compiled(case: dict[str, Any]) -> Pipeline:
    facts = dict(case.get("facts", {}))
    if "changed_files" in facts:
        facts["changed_files"] = frozenset(facts["changed_files"])
    if "files" in facts:
        facts["files"] = {path: f"id of {path}" for path in facts["files"]}
    components = {address: Component(**each) for address, each in case.get("components", {}).items()}
    sources = MemorySources(
        case.get("files"), projects=case.get("projects"), remotes=case.get("remotes"), components=components
    )
    return compile_pipeline(case["text"], file="f", facts=Facts(**facts), sources=sources, inputs=case.get("inputs"))


def test_there_are_many_small_files() -> None:
    assert len(CASES) >= 150


@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any]) -> None:
    assert case.keys() <= KEYS | {"graph", "pipeline", "mistakes"}
    if "mistakes" in case:
        with pytest.raises(PipelineError) as caught:
            compiled(case)
        found = [line.removeprefix("f:") for line in str(caught.value).splitlines()]
        assert len(found) == len(case["mistakes"]), found
        for line, beginning in zip(found, case["mistakes"], strict=True):
            assert line.startswith(beginning), found
        return
    pipeline = compiled(case)
    assert msgspec.json.decode(msgspec.json.encode(pipeline), type=Pipeline) == pipeline
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
