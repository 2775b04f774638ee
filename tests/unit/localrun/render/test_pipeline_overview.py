from textwrap import dedent

import pytest

from remuda.lib.exits import BadInputError
from remuda.localrun.render.pipeline_overview import details, find, headline, table
from remuda.pipeline import Pipeline, compile_pipeline

TEXT = """\
stages: [build, test]
compile:
  stage: build
  tags: [a, b, c, d, e]
  retry: 2
  script: [make]
unit:
  parallel: 2
  needs: [compile]
  interruptible: true
  script: |
    make test
    echo
lint:
  needs: []
  allow_failure: true
  script: [ruff]
report:
  needs: [unit, {job: gone, optional: true}]
  environment: staging
  resource_group: one
  rules:
    - when: delayed
      start_in: 5 minutes
  script: [x]
other:
  trigger: group/other
gone:
  script: [x]
  rules:
    - if: $NEVER
"""


@pytest.fixture
def pipeline() -> Pipeline:
    return compile_pipeline(TEXT)


def test_the_table(pipeline: Pipeline) -> None:
    assert headline(pipeline) == "6 jobs in 2 stages, 1 left out by rules"
    lines = table(pipeline, "f.yml")
    assert [" ".join(line.split()) for line in lines] == [
        "job when needs tags rule environment notes",
        "build",
        "compile on_success a, b, c and 2 more retry 2",
        "test",
        "unit 1/2 on_success compile interruptible",
        "unit 2/2 on_success compile interruptible",
        "lint on_success, may fail nothing",
        "report delayed 300s unit ×2, gone rule 1 (line 23) staging one at a time in one",
        "other on_success triggers group/other",
        "",
        "left out",
        "gone no rule matched f.yml:28",
    ]


def test_columns_without_a_value_are_left_out() -> None:
    assert table(compile_pipeline("job: {script: [x]}"), "f") == ["job    when", "test", "  job  on_success"]


def test_no_pipeline() -> None:
    skipped = compile_pipeline("workflow: {rules: [{when: never}]}\njob: {script: [x]}")
    assert headline(skipped) == "no pipeline: the rule of workflow:rules on line 1 says never"
    assert table(skipped, "f") == []
    with pytest.raises(BadInputError, match="there is no pipeline"):
        find(skipped, "job")


def test_one_job(pipeline: Pipeline) -> None:
    assert "\n".join(details(find(pipeline, "unit 2/2"), "f.yml")) == dedent(
        """\
        unit 2/2 (f.yml:7)
          stage: test
          script:
            make test
            echo
          variables:
            CI_NODE_INDEX: 2
            CI_NODE_TOTAL: 2
          needs:
            {"job":"compile","artifacts":true,"optional":false}
          when: on_success
          interruptible: true"""
    )


def test_a_parallel_job_by_its_name_in_the_file(pipeline: Pipeline) -> None:
    lines = details(find(pipeline, "unit"), "f.yml")
    assert lines[0] == "unit 1/2 (f.yml:7)"
    assert lines[-3:] == ["  parts: 2", "    unit 1/2", "    unit 2/2"]


def test_a_job_that_is_left_out(pipeline: Pipeline) -> None:
    assert details(find(pipeline, "gone"), "f.yml") == ["gone (f.yml:28) is left out: no rule matched"]


def test_an_unknown_job(pipeline: Pipeline) -> None:
    with pytest.raises(BadInputError, match='no such job; did you mean "report"'):
        find(pipeline, "reprot")
    with pytest.raises(BadInputError, match="leave it out to see all"):
        find(pipeline, "something else")


def test_hostile_names_do_not_reach_the_terminal() -> None:
    hostile = '"a\\x1b[31m\\nb": {script: ["\\x1b[2J"], tags: ["\\x07"], stage: test}'
    pipeline = compile_pipeline(hostile)
    lines = [*table(pipeline, "f\n"), *details(pipeline.jobs, "f\n")]
    assert all(line.isprintable() for line in lines)
