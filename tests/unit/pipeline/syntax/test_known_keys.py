import re
from pathlib import Path

import pytest

from remuda.pipeline import compile_pipeline
from remuda.pipeline.syntax import known_keys
from remuda.pipeline.syntax.known_keys import Keys

PAGE = Path(__file__).parents[4] / "docs/reference/pipeline-keywords.md"
SECTIONS = {
    "Top level": known_keys.TOP,
    "default": known_keys.DEFAULT,
    "Job": known_keys.JOB,
    "workflow": known_keys.WORKFLOW,
    "rules": known_keys.RULE,
    "only and except": known_keys.ONLY,
    "include": known_keys.INCLUDE,
    "spec": known_keys.SPEC,
    "needs": known_keys.NEED,
    "artifacts": known_keys.ARTIFACTS,
    "retry": known_keys.RETRY,
    "variable": known_keys.VARIABLE,
    "allow_failure": known_keys.ALLOW_FAILURE,
    "parallel": known_keys.PARALLEL,
    "inherit": known_keys.INHERIT,
    "image": known_keys.IMAGE,
    "services": known_keys.SERVICE,
    "cache": known_keys.CACHE,
    "hooks": known_keys.HOOKS,
    "environment": known_keys.ENVIRONMENT,
    "release": known_keys.RELEASE,
    "secrets": known_keys.SECRET,
    "trigger": known_keys.TRIGGER,
    "run": known_keys.STEP,
}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_lists_every_key_with_its_status(section: str) -> None:
    text = PAGE.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    explained = re.findall(r"(?:^`\w+`.*\n)+(?=:   )", text, re.MULTILINE)
    without_effect = re.findall(r"`(\w+)`", "".join(lines for lines in explained if "(no effect)" in lines))
    refused = "".join(re.findall(r"^Not supported yet: [^.]*", text, re.MULTILINE))
    keys = SECTIONS[section]
    assert sorted(without_effect) == sorted(keys.no_effect)
    names = [name for name in re.findall(r"`(\w+)`", "".join(explained)) if name in keys.works]
    assert (tuple(names), tuple(re.findall(r"`(\w+)`", refused))) == (keys.works, keys.later)
    assert {*names, *without_effect} == set(re.findall(r"`(\w+)`", "".join(explained)))


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


def test_nearest_and_join_names() -> None:
    assert known_keys.nearest("artefacts", known_keys.JOB.works) == 'did you mean "artifacts"?'
    assert known_keys.nearest("zzz", known_keys.JOB.works) == ""
    assert known_keys.join_names(["a", "b", "c"], limit=2) == "a, b, ..."
