"""Explanations why no runner has taken a job yet."""

from typing import Any

import pytest

from remuda.cell.core.waiting.no_runner_reasons import (
    RunnerSupply,
    RunnerView,
    availability,
    explain_missing_runners,
    explain_no_runner,
    rough_duration,
    view_of,
)
from remuda.cell.values import Job, RunnerManager
from remuda.model.job import JobState, ProjectId, RunnerId
from remuda.model.runner import RunnerType
from remuda.queue import Place
from remuda.queue.pickups import Estimate
from remuda.testing.builders import NOW, a_job, a_runner
from remuda.wire.explanations import EstimateInfo, QueueInfo

PLACE = Place(ahead=2, competing=5, level=1, running=3)


def pending_job(**changes: Any) -> Job:
    return a_job(state=JobState.PENDING, pending_at=NOW, **changes)


def runner_view(number: int = 1, *, ago: float | None = 5, jobs: int = 0, **changes: Any) -> RunnerView:
    contacted_at = None if ago is None else NOW - ago
    return RunnerView(runner=a_runner(id=RunnerId(number), **changes), contacted_at=contacted_at, jobs=jobs)


def test_matching_runners_are_counted_by_availability() -> None:
    runners = (
        runner_view(1),
        runner_view(2, jobs=2),
        runner_view(3, paused=True),
        runner_view(4, ago=1000),
        runner_view(5, ago=100_000),
        runner_view(6, ago=None),
        runner_view(7, ago=1000, jobs=1),
    )
    counts = explain_no_runner(pending_job(), RunnerSupply(runners=runners), NOW).runners
    assert (counts.known, counts.matching) == (7, 7)
    assert (counts.free, counts.busy, counts.paused) == (1, 2, 1)
    assert (counts.silent, counts.offline, counts.never_seen) == (1, 1, 1)
    assert counts.last_seen_at == NOW - 5


def test_runners_that_do_not_fit_are_counted_by_reason() -> None:
    runners = (
        runner_view(1, tags=("linux",)),
        runner_view(2, tags=("mac",)),
        runner_view(3),
        runner_view(4, type=RunnerType.PROJECT, project_ids=(ProjectId(9),), tags=("linux", "gpu")),
        runner_view(5, tags=("linux", "gpu"), protected_only=True),
        runner_view(6),
    )
    counts = explain_no_runner(pending_job(tags=("linux", "gpu")), RunnerSupply(runners=runners), NOW).runners
    assert counts.matching == 0
    assert {entry.reason: entry.count for entry in counts.others} == {
        "lacks the tags gpu": 1,
        "lacks the tags gpu, linux": 3,
        "does not serve this project": 1,
        "takes only jobs of protected refs": 1,
    }


@pytest.mark.parametrize(
    ("job", "runners", "advice"),
    [
        (pending_job(), (), "create a runner"),
        (
            pending_job(tags=("gpu",)),
            (runner_view(tags=("linux",)),),
            "no runner has the tag gpu: register one or change the tags",
        ),
        (
            pending_job(tags=("gpu", "arm")),
            (runner_view(tags=("linux",)),),
            "no runner has the tags arm, gpu: register one or change the tags",
        ),
        (
            pending_job(tags=("gpu", "linux")),
            (runner_view(1, tags=("linux",)), runner_view(2, tags=("gpu",))),
            "no runner has all of the tags gpu, linux: add them to one, or change the job's",
        ),
        (pending_job(), (runner_view(tags=("linux",), run_untagged=False),), "`remuda runner tags 1 --untagged`"),
        (
            pending_job(),
            (runner_view(type=RunnerType.PROJECT, project_ids=(ProjectId(9),)),),
            "no runner serves this project: assign one to it, or create one",
        ),
        (
            pending_job(ref="topic"),
            (runner_view(protected_only=True),),
            'take only jobs of protected refs, and "topic" is none',
        ),
        (pending_job(), (runner_view(3, paused=True),), "resume runner 3: remuda runner resume 3"),
        (pending_job(), (runner_view(3, ago=None, description="big"),), 'start a manager for runner 3 "big"'),
        (pending_job(), (runner_view(ago=10_000),), "last heard of at 2025-06-15T12:20:00.000Z"),
        (pending_job(), (runner_view(jobs=1),), "wait until a runner is free, or add one"),
    ],
)
def test_advice(job: Job, runners: tuple[RunnerView, ...], advice: str) -> None:
    assert advice in explain_no_runner(job, RunnerSupply(runners=runners), NOW).advice[0]


def test_no_advice_if_a_runner_is_free() -> None:
    assert explain_no_runner(pending_job(), RunnerSupply(runners=(runner_view(),)), NOW).advice == ()


def test_a_free_runner_that_does_not_take_the_next_job_is_named() -> None:
    job = a_job(state=JobState.PENDING, pending_at=NOW - 61)
    place = Place(ahead=0, competing=5, level=1, running=3)
    [advice] = explain_no_runner(
        job, RunnerSupply(runners=(runner_view(), runner_view(2, jobs=1)), place=place), NOW
    ).advice
    assert advice.startswith("check the log of the manager of runner 1")
    for supply in (RunnerSupply(runners=(runner_view(),)), RunnerSupply(runners=(runner_view(),), place=PLACE)):
        assert explain_no_runner(job, supply, NOW).advice == ()


@pytest.mark.parametrize(
    ("runners", "text"),
    [
        ((), "there is none"),
        ((runner_view(tags=("x",), run_untagged=False),), "the only one does not fit"),
        ((runner_view(1, run_untagged=False), runner_view(2, run_untagged=False)), "none of the 2 fits"),
        ((runner_view(paused=True),), "1 fits, but it is paused"),
        ((RunnerView(runner=runner_view().runner),), "1 fits, but it was never seen"),
        ((runner_view(1, paused=True), runner_view(2, ago=9999)), "2 fit, but none is available (1 paused, 1 offline)"),
        ((runner_view(1), runner_view(2, jobs=1)), "2 fit, 1 without a job and 1 busy; 2 go before it"),
    ],
)
def test_summary_text(runners: tuple[RunnerView, ...], text: str) -> None:
    assert explain_no_runner(pending_job(), RunnerSupply(runners=runners, place=PLACE), NOW).text == text


@pytest.mark.parametrize(("ahead", "text"), [(0, "; it is next"), (1, "; 1 goes before it"), (None, "")])
def test_text_of_the_queue_position(ahead: int | None, text: str) -> None:
    """The position is None if another process has just stored the job and this process has not read it yet."""
    place = None if ahead is None else Place(ahead=ahead, competing=5, level=1, running=3)
    explanation = explain_no_runner(pending_job(), RunnerSupply(runners=(runner_view(),), place=place), NOW)
    assert explanation.text == f"1 fits, 1 without a job and 0 busy{text}"


def test_queue_and_estimate() -> None:
    supply = RunnerSupply(runners=(runner_view(jobs=1),), place=PLACE, estimate=Estimate(seconds=40.2, pick_ups=12))
    explanation = explain_no_runner(pending_job(), supply, NOW)
    assert explanation.queue == QueueInfo(ahead=2, competing=5, priority=0, priority_now=1, project_running=3)
    assert explanation.estimate == EstimateInfo(
        seconds=40.2, pick_ups=12, within_seconds=600, text="about 40 s (12 pick-ups in the last 10 minutes)"
    )


def test_there_is_no_estimate_without_an_available_runner() -> None:
    supply = RunnerSupply(runners=(runner_view(paused=True),), place=PLACE, estimate=Estimate(seconds=40, pick_ups=12))
    assert explain_no_runner(pending_job(), supply, NOW).estimate is None


def test_a_runner_with_jobs_is_busy_even_without_recent_polls() -> None:
    assert availability(runner_view(ago=100_000, jobs=1), NOW) == "busy"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "1 s"), (99, "99 s"), (100, "2 minutes"), (5000, "83 minutes"), (7200, "2 hours")]
)
def test_rough_durations(seconds: float, text: str) -> None:
    assert rough_duration(seconds) == text


def test_jobs_without_a_runner_are_named_by_what_is_missing() -> None:
    jobs = [
        a_job("a", tags=("gpu",)),
        a_job("b", tags=("gpu",)),
        a_job("c", tags=("linux",)),
        a_job("d"),
        a_job("trigger", tags=("gpu",), is_trigger=True),
        a_job("ended", tags=("gpu",), state=JobState.SUCCESS),
    ]
    runners = [runner_view(1, tags=("linux",), ago=None), runner_view(2)]
    assert explain_missing_runners(jobs, runners, NOW) == [
        "a, b wait for a runner: no runner has the tag gpu: register one or change the tags",
        "c waits for a runner: 1 fits, but it was never seen",
    ]
    assert explain_missing_runners(jobs[3:], runners, NOW) == []
    many = [a_job(f"job{number}", tags=("gpu",)) for number in range(8)]
    assert "job0, job1, job2, job3, job4, 3 more wait" in explain_missing_runners(many, runners, NOW)[0]


def manager(name: str, *, ago: float = 5, problem: str = "") -> RunnerManager:
    return RunnerManager(runner_id=RunnerId(1), system_id=name, contacted_at=NOW - ago, problem=problem)


def test_a_runner_whose_managers_can_run_no_job() -> None:
    view = view_of(a_runner(id=RunnerId(1)), [manager("a", problem="no engine answers")], jobs=0, now=NOW)
    reason = explain_no_runner(pending_job(), RunnerSupply(runners=(view,)), NOW)
    assert (reason.text, reason.runners.blocked) == ("1 fits, but it is blocked", 1)
    assert any("takes no jobs: no engine answers" in advice for advice in reason.advice)


@pytest.mark.parametrize(
    ("managers", "state"),
    [
        ([manager("a", problem="no engine"), manager("b")], "free"),
        ([manager("a", problem="no engine"), manager("b", ago=100_000)], "blocked"),
        ([manager("a", ago=100_000, problem="no engine")], "offline"),
        ([], "never_seen"),
    ],
)
def test_a_runner_is_blocked_if_no_present_manager_takes_jobs(managers: list[RunnerManager], state: str) -> None:
    assert availability(view_of(a_runner(id=RunnerId(1)), managers, jobs=0, now=NOW), NOW) == state
