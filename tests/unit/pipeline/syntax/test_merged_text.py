"""A merged file compiles to the same pipeline as the files that it was made of."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.pipeline import (
    MemorySources,
    Pipeline,
    PipelineError,
    compile_pipeline,
    merge_yaml,
)
from remuda.pipeline.errors import Report
from remuda.pipeline.syntax.tree import plain
from remuda.pipeline.syntax.yaml_document import read_document

CaseArguments = Callable[[dict[str, Any]], dict[str, Any]]

CASES = [
    pytest.param(case, id=f"{file.stem}: {case['case']}")
    for file in sorted((Path(__file__).parents[1] / "cases").glob("*.yml"))
    for case in yaml.safe_load(file.read_text())
    if "mistakes" not in case
]


def without_places(pipeline: Pipeline) -> Pipeline:
    """Remove lines and file names: a merged file has other lines, and it is one file."""
    jobs = tuple(
        msgspec.structs.replace(job, line=0, file="", rule="a rule" if job.rule else "") for job in pipeline.jobs
    )
    skipped = None if pipeline.skipped is None else ""
    return msgspec.structs.replace(pipeline, jobs=jobs, left_out=(), skipped=skipped, warnings=())


@pytest.mark.parametrize("case", CASES)
def test_compiling_it_gives_the_same_jobs(case: dict[str, Any], case_arguments: CaseArguments) -> None:
    arguments = case_arguments(case)
    pipeline = compile_pipeline(case["text"], **arguments)
    merged = merge_yaml(case["text"], **arguments)
    again = compile_pipeline(merged, facts=arguments["facts"], sources=arguments["sources"])
    assert without_places(again) == without_places(pipeline)


def test_includes_templates_and_references_are_written_out() -> None:
    text = """
        include: ci.yml
        job:
          extends: .slow
          script:
            - !reference [.setup, script]
            - |
              one
              two
        """
    files = {"ci.yml": "{.setup: {script: [a]}, .slow: {timeout: 1h, variables: {N: '1'}}}"}
    assert merge_yaml(dedent(text), sources=MemorySources(files)) == dedent(
        """\
        ---
        .setup:
          script:
          - a
        .slow:
          timeout: 1h
          variables:
            N: '1'
        job:
          timeout: 1h
          variables:
            N: '1'
          extends: .slow
          script:
          - - a
          - |
            one
            two
        """
    )


LEAVES = st.text(max_size=12) | st.sampled_from(
    [
        "yes",
        "1e3",
        "1,000",
        "0x1f",
        "<<",
        "=",
        "~",
        "null",
        "- a",
        "a: b",
        "# c",
        " x",
        "x\n",
        "a\n\nb",
        "\ta\nb",
        "é😀",
    ]
)
TREES = st.recursive(
    LEAVES | st.integers(-5, 5) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab-:#", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(TREES)
def test_every_value_comes_back(tree: object) -> None:
    text = yaml.safe_dump({"job": tree})
    report = Report("f")
    try:
        first = plain(read_document(text, report).body)
        report.finish()
    except PipelineError:
        return
    assert plain(read_document(merge_yaml(text), Report("f")).body) == first


def test_a_shared_text_that_would_become_huge_is_refused() -> None:
    long = "x" * 200_000
    jobs = "".join(f"j{n}: {{script: [!reference [.t, script]]}}\n" for n in range(200))
    with pytest.raises(PipelineError) as caught:
        merge_yaml(f".t: {{script: ['{long}']}}\n{jobs}")
    assert "more than 20000000 characters" in str(caught.value)


def test_an_unknown_template_is_a_mistake() -> None:
    with pytest.raises(PipelineError) as caught:
        merge_yaml("job: {extends: .gone, script: [x]}", file="f")
    assert str(caught.value).startswith('f:1:16: job:extends: there is no ".gone"')
