import re
from pathlib import Path

import pytest

from remuda.pipeline import compile_pipeline, keywords
from remuda.pipeline.keywords import Keys

PAGE = Path(__file__).parents[3] / "docs/reference/pipeline-keywords.md"
SECTIONS = {
    "Top level": keywords.TOP,
    "default": keywords.DEFAULT,
    "Job": keywords.JOB,
    "workflow": keywords.WORKFLOW,
    "rules": keywords.RULE,
    "only and except": keywords.ONLY,
    "include": keywords.INCLUDE,
    "spec": keywords.SPEC,
    "needs": keywords.NEED,
    "artifacts": keywords.ARTIFACTS,
    "retry": keywords.RETRY,
    "variable": keywords.VARIABLE,
    "allow_failure": keywords.ALLOW_FAILURE,
    "parallel": keywords.PARALLEL,
    "inherit": keywords.INHERIT,
    "image": keywords.IMAGE,
    "services": keywords.SERVICE,
    "cache": keywords.CACHE,
    "hooks": keywords.HOOKS,
    "environment": keywords.ENVIRONMENT,
    "release": keywords.RELEASE,
    "secrets": keywords.SECRET,
    "trigger": keywords.TRIGGER,
    "run": keywords.STEP,
}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_lists_every_key_with_its_status(section: str) -> None:
    text = PAGE.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (works|compiles|not yet) \|", text, re.MULTILINE)
    listed = Keys(
        works=tuple(key for key, status in rows if status != "not yet"),
        later=tuple(key for key, status in rows if status == "not yet"),
    )
    assert listed == SECTIONS[section]


def test_the_example_of_the_page_compiles() -> None:
    example = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    pipeline = compile_pipeline(example[1])
    assert [job.name for job in pipeline.jobs] == [
        "compile: [linux, amd64]",
        "compile: [linux, arm64]",
        "compile: [darwin, amd64]",
        "compile: [darwin, arm64]",
        "check 1/3",
        "check 2/3",
        "check 3/3",
        "publish",
    ]
    assert pipeline.name == "fast checks of main"


@pytest.mark.parametrize("keys", SECTIONS.values(), ids=SECTIONS)
def test_no_key_is_listed_twice(keys: Keys) -> None:
    every = keys.works + keys.later
    assert len(set(every)) == len(every)


def test_nearest_and_listed() -> None:
    assert keywords.nearest("artefacts", keywords.JOB.works) == 'did you mean "artifacts"?'
    assert keywords.nearest("zzz", keywords.JOB.works) == ""
    assert keywords.listed(["a", "b", "c"], limit=2) == "a, b, ..."
