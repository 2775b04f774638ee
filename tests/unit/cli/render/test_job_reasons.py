"""Text output that explains why a job waits, failed or was skipped."""

from typing import Any

import msgspec

from remuda.cli.job.listing import describe
from remuda.cli.render.job_reasons import reasons
from remuda.wire.explanations import (
    EstimateInfo,
    FailureInfo,
    JobRef,
    JobWhy,
    QueueInfo,
    ReasonCount,
    RunnerCounts,
    WaitInfo,
)


def render_reasons(**changes: Any) -> list[str]:
    values: dict[str, Any] = {
        "job_id": 7,
        "name": "build",
        "pipeline_id": 3,
        "project": "acme/shop",
        "status": "pending",
        "state": "pending",
        "since": 1000,
        "summary": "waits",
    }
    return reasons(msgspec.to_builtins(JobWhy(**(values | changes))), 1123.4)


def test_a_job_that_waits_for_a_runner() -> None:
    output = render_reasons(
        runners=RunnerCounts(known=4, matching=2, busy=1, paused=1, others=(ReasonCount(reason="lacks x", count=2),)),
        queue=QueueInfo(ahead=2, competing=5, priority=0, priority_now=1, project_running=3),
        estimate=EstimateInfo(seconds=40, pick_ups=12, within_seconds=600, text="about 40 s (12 pick-ups)"),
        waits_for=(WaitInfo(kind="runner", text="a runner"),),
        advice=("wait",),
    )
    assert output == [
        "job 7: build (acme/shop, pipeline 3)",
        "  pending for 2m 03s: waits",
        "  runners    2 of 4 match: 1 busy, 1 paused",
        "             2: lacks x",
        "  queue      2 of 5 go before it; priority 0, 1 by waiting",
        "  project    has 3 with runners; the project with fewer goes first",
        "  estimate   about 40 s (12 pick-ups)",
        "  what to do",
        "    wait",
    ]


def test_the_end_of_a_job_is_a_moment() -> None:
    assert render_reasons(status="failed", state="failed")[1] == "  failed 2m 03s ago: waits"


def test_further_sentences_of_a_failure_and_the_warnings_of_the_runner_have_their_own_lines() -> None:
    output = render_reasons(
        status="failed",
        state="failed",
        failure=FailureInfo(
            reason="runner_configuration_error", fault="runner", message="no engine. Tried: a. Start one"
        ),
        warnings=("image a ignored", "service b not started"),
        advice=("retry it",),
    )
    assert output[2:] == [
        "  details    Tried: a",
        "             Start one",
        "  warning    image a ignored, service b not started",
        "  what to do",
        "    retry it",
    ]


def test_a_job_that_waits_for_others() -> None:
    output = render_reasons(
        status="created",
        waits_for=(
            WaitInfo(kind="stage", text="2 jobs of stage x"),
            WaitInfo(kind="job", text='"a", which is running'),
        ),
        not_named=1,
        upstream=JobRef(id=2, name="go", pipeline_id=1),
    )
    assert output[2:] == [
        "  waits for",
        "    2 jobs of stage x",
        '    "a", which is running',
        "    and 1 more",
        '  started by job 2 "go" of pipeline 1',
    ]


def test_a_skipped_job() -> None:
    output = render_reasons(status="skipped", since=None, because=(JobRef(id=2, name="a", status="failed"),))
    assert output[1:] == ["  skipped: waits", "  because of", '    job 2 "a", which is failed']


def test_offline_runners() -> None:
    output = render_reasons(runners=RunnerCounts(known=1, matching=1, offline=1, last_seen_at=1000.0))
    assert output[2] == "  runners    1 of 1 match: 1 offline"
    assert output[3].startswith("             last heard of at ")


def test_unknown_fields_of_a_newer_cell_are_ignored() -> None:
    why = msgspec.to_builtins(
        JobWhy(job_id=7, name="b", pipeline_id=3, project="p", status="failed", state="failed", summary="failed")
    )
    assert reasons(why | {"new": {"x": 1}}, 0)[1] == "  failed: failed"


def test_a_job_shows_the_warnings_of_its_runner() -> None:
    job = {"id": 7, "name": "build", "status": "success", "stage": "test", "ref": "main", "pipeline": {"id": 3}}
    lines = describe(job | {"warnings": ["image a ignored", "service b not started"]})
    assert "  warning    image a ignored, service b not started" in lines


def test_time_spent_in_each_phase() -> None:
    job = {
        "id": 7,
        "name": "build",
        "status": "success",
        "stage": "test",
        "ref": "main",
        "pipeline": {"id": 3},
        "times": {"split": {"total_seconds": 70.0, "parts": {"waiting": 10.0, "image": 0.0, "script": 60.0}}},
    }
    assert describe(job)[-3:] == ["  time       1m 10s", "    waiting    10.0s", "    script     1m 00s"]
    assert not any("time" in line for line in describe(job | {"times": {"split": None}}))
