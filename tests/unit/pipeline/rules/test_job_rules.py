"""A pipeline records which rule decided about a job, and why a job is left out."""

from textwrap import dedent

import pytest

from remuda.pipeline import Facts, LeftOut, MemorySources, compile_pipeline
from remuda.pipeline.facts import MERGE_REQUEST


def reasons(text: str, **facts: object) -> dict[str, str]:
    text = f"{dedent(text)}\nalways:\n  script: [x]\n  rules: [{{when: always}}]\n"
    pipeline = compile_pipeline(text, facts=Facts(**facts))  # type: ignore[arg-type]
    return {job.name: job.reason for job in pipeline.left_out}


def test_the_rule_that_decided_is_named() -> None:
    text = """\
        job:
          script: [x]
          rules:
            - if: $NEVER
            - if: $CI_COMMIT_BRANCH
              when: never
        other:
          script: [x]
          rules:
            - if: $NEVER
        """
    assert reasons(text) == {"job": "rule 2 (line 5): when: never", "other": "no rule matched"}


def test_a_job_records_the_rule_that_included_it() -> None:
    files = {"ci.yml": "job:\n  script: [x]\n  rules:\n    - if: $NEVER\n    - when: manual\n"}
    pipeline = compile_pipeline("include: ci.yml\nplain: {script: [x]}", sources=MemorySources(files))
    assert {job.name: job.rule for job in pipeline.jobs} == {"job": "rule 2 (ci.yml:5)", "plain": ""}


@pytest.mark.parametrize(
    ("job", "facts", "reason"),
    [
        ("", {"source": MERGE_REQUEST}, "without rules it does not run for merge requests"),
        ("only: [tags]", {}, "only:refs (line 1): no entry matches"),
        ("only: {variables: [$NONE]}", {}, "only:variables (line 1): no condition is true"),
        ("only: {changes: [a]}", {"changed_files": frozenset()}, "only:changes (line 1): no matching file changed"),
        ("except: [branches]", {}, "except:refs (line 1): an entry matches"),
        ("except: {variables: [$CI]}", {}, "except:variables (line 1): a condition is true"),
        (
            "except: {changes: [a]}",
            {"changed_files": frozenset(["a"])},
            "except:changes (line 1): a matching file changed",
        ),
    ],
)
def test_only_and_except_give_the_reason_why_a_job_is_left_out(job: str, facts: dict[str, object], reason: str) -> None:
    assert reasons(f"job: {{script: [x], {job}}}", **facts) == {"job": reason}


def test_a_parallel_job_is_left_out_once_or_part_by_part() -> None:
    text = """\
        all:
          parallel: 3
          script: [x]
          rules: [{if: $NEVER}]
        some:
          parallel: {matrix: [{A: [x, y, z]}]}
          script: [x]
          rules: [{if: $A == "x", when: never}, {if: $A == "y"}]
        """
    assert reasons(text) == {
        "all": "no rule matched",
        "some: [x]": "rule 1 (line 8): when: never",
        "some: [z]": "no rule matched",
    }


def test_the_line_and_file_are_those_of_the_job() -> None:
    files = {"ci.yml": "\njob:\n  script: [x]\n  rules: [{when: never}]\n"}
    pipeline = compile_pipeline("include: ci.yml\nplain: {script: [x]}", sources=MemorySources(files))
    assert pipeline.left_out == (LeftOut(name="job", reason="rule 1 (ci.yml:4): when: never", line=2, file="ci.yml"),)
