"""The text of the answer to a push: width, limits, and no character that could change the user's terminal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.pipelines.push_messages import SHOWN_MISTAKES, SHOWN_REFS, PushAnswer, join_names, write_answer
from remuda.cell.values.pushes import PushOutcome
from remuda.model.job import JobState
from remuda.pipeline import LeftOut, Mistake
from remuda.testing.builders import a_job, a_pipeline

MISTAKE = Mistake(file=".gitlab-ci.yml", line=2, column=3, key="a:scrip", message="unknown key", suggestion="cut it")


def an_outcome(**changes: Any) -> PushOutcome:
    return PushOutcome(**{"ref": "refs/heads/main", "sha": "1" * 40, "file": ".gitlab-ci.yml", **changes})


def answer_of(*outcomes: PushOutcome, **changes: Any) -> str:
    return write_answer(PushAnswer(project="root/app", url="http://cell.example/", outcomes=outcomes, **changes))


def test_nothing_to_say() -> None:
    assert answer_of() == ""
    assert answer_of(an_outcome(ref="refs/merge-requests/7/merge")) == ""


def test_a_failed_pipeline() -> None:
    pipeline = a_pipeline(status="failed")
    assert (
        answer_of(an_outcome(pipeline=pipeline, mistakes=(MISTAKE,), warnings=(MISTAKE,)))
        == f"""
error: pipeline {pipeline.id} of main failed: 1 mistake in .gitlab-ci.yml
  .gitlab-ci.yml:2:3: a:scrip: unknown key; cut it
  http://cell.example/root/app/-/pipelines/{pipeline.id}
warning: .gitlab-ci.yml:2:3: a:scrip: unknown key; cut it

"""
    )


def test_a_pipeline_that_starts_by_hand() -> None:
    jobs = (a_job("deploy", state=JobState.MANUAL), a_job("later", state=JobState.CREATED))
    assert "of main: 2 jobs; start by hand: deploy\n" in answer_of(an_outcome(pipeline=a_pipeline(), jobs=jobs))


def test_refs_with_the_same_reason_are_joined() -> None:
    outcomes = [an_outcome(ref=f"refs/tags/v{number}", reason="there is none") for number in range(7)]
    left_out = (LeftOut(name="a", reason="no rule matched", line=1),)
    text = answer_of(*outcomes, an_outcome(reason="no job is left", left_out=left_out))
    assert "No pipeline for tag v0, tag v1, tag v2, tag v3, tag v4 and 2 more: there\n  is none\n" in text
    assert "No pipeline for main: no job is left\n  a: no rule matched\n" in text


def test_a_pipeline_that_is_not_created_yet() -> None:
    text = answer_of(unfinished=["refs/heads/main"])
    assert text.split("\n\n")[0].strip().startswith("The pipeline of main is still being created")
    assert text.endswith("  remuda pipeline list --project root/app\n\n")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (list("abcdefg"), "a, b, c, d, e and 2 more"),
    ],
)
def test_names(names: list[str], text: str) -> None:
    assert join_names(names) == text


def test_the_text_is_limited() -> None:
    mistakes = tuple(Mistake(file="f", line=line, column=1, key="k" * 999, message="m" * 9999) for line in range(1000))
    outcomes = [an_outcome(pipeline=a_pipeline(status="failed"), mistakes=mistakes) for _ in range(1000)]
    text = answer_of(*outcomes)
    assert f"... and {1000 - SHOWN_MISTAKES} more mistakes; see all of them" in text
    assert f"... and {1000 - SHOWN_REFS} more pipelines" in text
    assert len(text) < SHOWN_REFS * SHOWN_MISTAKES * 1000


@given(st.text(), st.text(), st.text())
def test_only_printable_characters_and_narrow_lines(name: str, message: str, option: str) -> None:
    mistake = Mistake(file=name, line=1, column=1, key=message, message=message)
    outcome = an_outcome(
        ref=f"refs/heads/{name}",
        pipeline=a_pipeline(status="failed"),
        mistakes=(mistake,),
        warnings=(mistake,),
        ignored_options=(option,),
    )
    other = an_outcome(ref=f"refs/tags/{name}", reason=message, left_out=(LeftOut(name=name, reason=option, line=1),))
    jobs = (a_job(name, state=JobState.PENDING),)
    third = an_outcome(pipeline=a_pipeline(), jobs=jobs)
    text = answer_of(outcome, other, third, unfinished=[name], missing_runners={third.pipeline.id: [message]})  # type: ignore[union-attr]
    lines = text.split("\n")
    assert all(line.isprintable() for line in lines)
    assert all(len(line) <= 72 or len(line.split()) <= 2 for line in lines)
