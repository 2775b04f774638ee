"""Compiles the repositories of examples/pipelines and compares their graphs with `examples.yml`.

An entry has the `example`, a description of the `event`, its `facts`, and the expected `graph`: jobs in order as
`stage/name`, with `when` in brackets unless it is `on_success`, each with the jobs that it waits for; `stages` means
all jobs of earlier stages. If there is no pipeline, the entry has the reason in `left out` instead of a graph.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.pipeline import Component, Facts, JobSpec, MemorySources, Pipeline, compile_pipeline, prerequisites

EXAMPLES = Path(__file__).parents[3] / "examples/pipelines"
CASES = yaml.safe_load(Path(__file__).with_name("examples.yml").read_text())
PREDEFINED = {"CI_PROJECT_NAMESPACE": "acme", "CI_SERVER_FQDN": "ci.example"}


def files_of(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def compile_example(example: str, facts: dict[str, Any], file: str = ".gitlab-ci.yml") -> Pipeline:
    files = files_of(EXAMPLES / example)
    templates = files_of(EXAMPLES / "shared-templates/ci-templates")
    component = Component(
        text=templates["templates/shell-check.yml"],
        project="acme/ci-templates",
        ref="main",
        file="templates/shell-check.yml",
    )
    sources = MemorySources(
        files,
        projects={"acme/ci-templates": templates},
        components={"ci.example/acme/ci-templates/shell-check@main": component},
    )
    other_facts = dict(facts)
    changed = other_facts.pop("changed_files", None)
    return compile_pipeline(
        files[file],
        facts=Facts(
            changed_files=None if changed is None else frozenset(changed),
            files=dict.fromkeys(files, "id"),
            predefined=PREDEFINED | other_facts.pop("predefined", {}),
            **other_facts,
        ),
        sources=sources,
    )


def job_label(job: JobSpec) -> str:
    return f"{job.stage}/{job.name}" + ("" if job.when == "on_success" else f" ({job.when})")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['example']}: {case['event']}")
def test_an_example_has_the_expected_graph(case: dict[str, Any]) -> None:
    pipeline = compile_example(case["example"], case.get("facts", {}), case.get("file", ".gitlab-ci.yml"))
    if "left out" in case:
        assert (pipeline.skipped, pipeline.jobs) == (case["left out"], ())
        return
    waits = prerequisites(pipeline.jobs)
    graph = {job_label(job): "stages" if job.needs is None else list(waits[job.name]) for job in pipeline.jobs}
    assert graph == case["graph"]
    assert list(graph) == list(case["graph"])
    assert pipeline.name == case.get("name", "")


def test_every_example_has_cases_for_several_events() -> None:
    folders = {path.parent.relative_to(EXAMPLES).parts[0] for path in EXAMPLES.rglob(".gitlab-ci.yml")}
    seen = [case["example"].split("/")[0] for case in CASES]
    assert len(folders) == 10
    assert {name for name in folders if seen.count(name) >= 2} == folders
    for folder in folders:
        assert (EXAMPLES / folder / "README.md").read_text().startswith(f"# {folder}\n")
