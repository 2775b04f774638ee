"""Jobs and steps as spans."""

import json
from typing import Any

import pytest
from tests.support.manager_values import a_row

from remuda.lib.clock import VirtualClock, stamp
from remuda.manager.core.record import Outcome
from remuda.manager.metrics.spans import JobSpans, find_exporter
from remuda.telemetry.spans import SERVER, Span
from remuda.wire.agent_client import JobVariable
from remuda.wire.runner_api import GitInfo, JobInfo, JobPayload, Variable

NOW = 1_750_000_000.0
ROW: dict[str, Any] = {"job_id": 7, "url": "https://ci.example", "runner_name": "bench", "received_at": NOW}
AROUND = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def a_payload(stage: str = "test", pipeline: int = 3, **variables: str) -> JobPayload:
    return JobPayload(
        id=7,
        token="t",
        job_info=JobInfo(name="unit", stage=stage, pipeline_id=pipeline, project_full_path="group/app"),
        git_info=GitInfo(ref="main", sha="c0ffee"),
        variables=[Variable(key=key, value=value) for key, value in variables.items()],
    )


class Bench:
    """The spans of a job, told in order."""

    def __init__(self, payload: JobPayload | None = None, **row: Any) -> None:
        self.spans: list[Span] = []
        self.job = JobSpans(
            a_row(**ROW | row),
            payload or a_payload(),
            offer=self.spans.append,
        )

    def hear(self, *events: dict[str, Any]) -> None:
        for event in events:
            self.job.on_result(self.job.next_seq, json.dumps(event).encode())

    def names(self) -> dict[str, Span]:
        return {span.name: span for span in self.spans}


def started(path: str, at: float, **more: Any) -> dict[str, Any]:
    return {"event": "started", "path": path, "name": path.rpartition("/")[2], "time": stamp(NOW + at)} | more


def finished(path: str, began: float, ended: float, **more: Any) -> dict[str, Any]:
    times = {"started_at": stamp(NOW + began), "finished_at": stamp(NOW + ended)}
    return started(path, ended) | {"event": "finished", "status": "success"} | times | more


def test_a_job() -> None:
    bench = Bench(a_payload(CI_PIPELINE_URL="https://ci.example/p/3", CI_RUNNER_ID="5"))
    bench.job.end(Outcome(state="success"), NOW + 9)
    [span] = bench.spans
    assert (span.name, span.kind, span.parent_id, span.started_at, span.ended_at, span.error) == (
        "unit",
        SERVER,
        "",
        NOW,
        NOW + 9,
        None,
    )
    assert span.attributes == {
        "cicd.pipeline.name": "group/app",
        "cicd.pipeline.run.id": "3",
        "cicd.pipeline.run.url.full": "https://ci.example/p/3",
        "cicd.pipeline.task.name": "unit",
        "cicd.pipeline.task.run.id": "7",
        "cicd.pipeline.task.type": "test",
        "cicd.worker.id": "5",
        "cicd.worker.name": "bench",
        "vcs.ref.head.name": "main",
        "vcs.ref.head.revision": "c0ffee",
        "cicd.pipeline.result": "success",
        "cicd.pipeline.task.run.result": "success",
        "process.exit.code": 0,
    }


@pytest.mark.parametrize(
    ("reason", "result"),
    [
        ("script_failure", "failure"),
        ("job_execution_timeout", "timeout"),
        ("job_canceled", "cancellation"),
        ("runner_system_failure", "error"),
        ("what_else", "error"),
    ],
)
def test_how_a_job_ended(reason: str, result: str) -> None:
    bench = Bench()
    bench.job.end(Outcome(state="failed", reason=reason, exit_code=3, message="x" * 5000), NOW + 1)
    [span] = bench.spans
    assert span.attributes["cicd.pipeline.task.run.result"] == result
    assert (span.attributes["error.type"], len(span.error or "")) == (reason, 1024)


def test_a_job_that_the_server_did_not_want_any_more() -> None:
    bench = Bench()
    bench.job.end(None, NOW + 1)
    [span] = bench.spans
    assert (span.attributes["cicd.pipeline.result"], span.error) == ("cancellation", "job_canceled")


def test_steps_are_below_those_that_called_them() -> None:
    bench = Bench()
    bench.hear(
        started("/box", 1),
        finished("/box/+open", 1, 2),
        started("/box/script", 2),
        finished("/box/script/fetch", 2, 3),
        finished("/box/script", 2, 4),
        finished("/box", 1, 5),
        finished("/last", 5, 6),
        finished("/never", 0, 6, status="skipped", started_at=None),
    )
    bench.job.end(Outcome(state="success"), NOW + 9)
    found = bench.names()
    assert set(found) == {"open", "fetch", "script", "box", "last", "unit"}
    job, box = found["unit"].span_id, found["box"].span_id
    assert {name: span.parent_id for name, span in found.items()} == {
        "open": box,
        "fetch": found["script"].span_id,
        "script": box,
        "box": job,
        "last": job,
        "unit": "",
    }
    assert len({span.trace_id for span in bench.spans}) == 1
    assert (found["fetch"].started_at, found["fetch"].ended_at) == (NOW + 2, NOW + 3)


def test_what_a_step_says() -> None:
    bench = Bench()
    resolved = {"reference": "builtin://cache@1.0.0", "digest": "sha256:ab", "commit": None, "version": "1.0.0"}
    policy = {"decision": "allowed", "rule": "", "enforced": ["memory"], "advisory": []}
    usage = {"cpu_user_seconds": 0.5, "max_rss_bytes": None, "io_read_bytes": 12}
    event = finished("/a", 0, 1, status="failure", exit_code=3, error="exit status 3", error_kind="exit", fault="user")
    bench.hear(
        event
        | {"resolved": resolved, "policy": policy, "usage": usage, "origin": "user", "environment": "/box"}
        | {"inputs": {"password": "x"}, "outputs": {"big": "x"}, "env": {"A": "x"}}
    )
    [span] = bench.spans
    assert span.error == "exit status 3"
    assert span.attributes == {
        "cicd.pipeline.task.name": "a",
        "cicd.pipeline.task.run.id": "7/a#1",
        "cicd.pipeline.task.run.result": "failure",
        "error.type": "exit",
        "process.exit.code": 3,
        "remuda.step.path": "/a",
        "remuda.step.reference": "builtin://cache@1.0.0",
        "remuda.step.digest": "sha256:ab",
        "remuda.step.version": "1.0.0",
        "remuda.step.origin": "user",
        "remuda.step.attempt": 1,
        "remuda.step.fault": "user",
        "remuda.step.environment": "/box",
        "remuda.step.policy.decision": "allowed",
        "remuda.step.policy.enforced": ["memory"],
        "remuda.step.cpu_user_seconds": 0.5,
        "remuda.step.io_read_bytes": 12,
    }


@pytest.mark.parametrize(
    ("end", "result"),
    [
        ({"status": "cancelled"}, "cancellation"),
        ({"status": "failure", "error_kind": "timeout", "fault": "user"}, "timeout"),
        ({"status": "failure", "error_kind": "system", "fault": "runner"}, "error"),
        ({"status": "failure", "error_kind": "load"}, "failure"),
        ({"status": "?"}, "error"),
    ],
)
def test_how_a_step_ended(end: dict[str, Any], result: str) -> None:
    bench = Bench()
    bench.hear(finished("/a", 0, 1, **end))
    [span] = bench.spans
    assert span.attributes["cicd.pipeline.task.run.result"] == result


def test_each_attempt_is_a_span_with_its_own_steps() -> None:
    bench = Bench()
    bench.hear(
        started("/a", 0, attempt=1),
        finished("/a/x", 0, 1),
        finished("/a", 0, 1, attempt=1, status="failure", retried=True),
        started("/a", 2, attempt=2),
        finished("/a/y", 2, 3),
        finished("/a", 2, 3, attempt=2),
    )
    x, first, y, second = bench.spans
    assert (x.parent_id, y.parent_id) == (first.span_id, second.span_id)
    assert first.span_id != second.span_id


def test_a_step_that_never_began_takes_no_time() -> None:
    bench = Bench()
    bench.hear(finished("/a", 0, 4, started_at=None, status="failure", error="denied", error_kind="policy"))
    [span] = bench.spans
    assert (span.started_at, span.ended_at, span.error) == (NOW + 4, NOW + 4, "denied")


def test_told_again_it_says_the_same() -> None:
    """As a manager does that takes the job up again."""
    events = [started("/a", 0), finished("/a/b", 0, 1), finished("/a", 0, 2)]
    benches = [Bench(), Bench()]
    for bench in benches:
        bench.hear(*events)
        bench.job.end(Outcome(state="success"), NOW + 3)
    assert benches[0].spans == benches[1].spans


def test_a_result_counts_once_and_in_its_turn() -> None:
    bench = Bench()
    document = json.dumps(finished("/a", 0, 1)).encode()
    for seq in (2, 1, 1, 0):
        bench.job.on_result(seq, document)
    assert (len(bench.spans), bench.job.next_seq) == (1, 2)


@pytest.mark.parametrize("document", [b"", b"[]", b'{"event": 5}', b'{"event": "finished", "status": "success"}'])
def test_what_cannot_be_read_is_no_span(document: bytes) -> None:
    bench = Bench()
    bench.job.on_result(1, document)
    assert (bench.spans, bench.job.next_seq) == ([], 2)


def test_jobs_of_a_pipeline_are_one_trace() -> None:
    one, other = Bench().job.context, Bench(key="8-def", job_id=8).job.context
    assert one.trace_id == other.trace_id
    assert one.span_id != other.span_id
    assert Bench(a_payload(pipeline=4)).job.context.trace_id != one.trace_id
    assert Bench(url="https://other.example").job.context.trace_id != one.trace_id
    assert Bench(a_payload(CI_PIPELINE_CREATED_AT="2026-01-01")).job.context.trace_id != one.trace_id


def test_a_job_may_be_part_of_a_trace() -> None:
    bench = Bench(a_payload(TRACEPARENT=AROUND))
    bench.job.end(Outcome(state="success"), NOW + 1)
    [span] = bench.spans
    assert f"00-{span.trace_id}-{span.parent_id}-01" == AROUND
    given = [JobVariable(key="A", value="1"), JobVariable(key="TRACEPARENT", value=AROUND)]
    own = JobVariable(key="TRACEPARENT", value=f"00-{span.trace_id}-{span.span_id}-01")
    assert bench.job.with_traceparent(given) == [given[0], own]


def test_a_trace_that_nobody_records() -> None:
    bench = Bench(a_payload(TRACEPARENT=AROUND[:-1] + "0"))
    bench.hear(started("/a", 0), finished("/a", 0, 1))
    bench.job.end(Outcome(state="success"), NOW + 1)
    assert bench.spans == []
    given = [JobVariable(key="TRACEPARENT", value=AROUND)]
    assert bench.job.with_traceparent(given) == given


@pytest.mark.parametrize(
    ("stage", "variables", "kind"),
    [("Build", {}, "build"), ("lint", {}, "lint"), ("ship", {"CI_ENVIRONMENT_NAME": "production"}, "deploy")],
)
def test_what_a_job_is_for(stage: str, variables: dict[str, Any], kind: str) -> None:
    bench = Bench(a_payload(stage, **variables))
    bench.job.end(Outcome(state="success"), NOW)
    assert bench.spans[0].attributes["cicd.pipeline.task.type"] == kind


def test_settings_that_cannot_be_met_are_no_reason_to_stop() -> None:
    said = {"OTEL_EXPORTER_OTLP_ENDPOINT": "nowhere"}
    assert find_exporter(said, VirtualClock(), lambda outcome, number: None, own_id="s_1") is None
