"""Jobs and steps as OpenTelemetry spans."""

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
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def a_payload(stage: str = "test", pipeline: int = 3, **variables: str) -> JobPayload:
    return JobPayload(
        id=7,
        token="t",
        job_info=JobInfo(name="unit", stage=stage, pipeline_id=pipeline, project_full_path="group/app"),
        git_info=GitInfo(ref="main", sha="c0ffee"),
        variables=[Variable(key=key, value=value) for key, value in variables.items()],
    )


class SpanRecorder:
    """Records the spans of a job."""

    def __init__(self, payload: JobPayload | None = None, **row: Any) -> None:
        self.spans: list[Span] = []
        self.job = JobSpans(
            a_row(**ROW | row),
            payload or a_payload(),
            offer=self.spans.append,
        )

    def add_events(self, *events: dict[str, Any]) -> None:
        for event in events:
            self.job.on_result(self.job.next_seq, json.dumps(event).encode())

    def by_name(self) -> dict[str, Span]:
        return {span.name: span for span in self.spans}


def started_event(path: str, offset: float, **more: Any) -> dict[str, Any]:
    return {"event": "started", "path": path, "name": path.rpartition("/")[2], "time": stamp(NOW + offset)} | more


def finished_event(path: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    times = {"started_at": stamp(NOW + start), "finished_at": stamp(NOW + end)}
    return started_event(path, end) | {"event": "finished", "status": "success"} | times | more


def test_attributes_of_a_job() -> None:
    recorder = SpanRecorder(a_payload(CI_PIPELINE_URL="https://ci.example/p/3", CI_RUNNER_ID="5"))
    recorder.job.end(Outcome(state="success"), NOW + 9)
    [span] = recorder.spans
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
def test_the_result_of_a_failed_job(reason: str, result: str) -> None:
    recorder = SpanRecorder()
    recorder.job.end(Outcome(state="failed", reason=reason, exit_code=3, message="x" * 5000), NOW + 1)
    [span] = recorder.spans
    assert span.attributes["cicd.pipeline.task.run.result"] == result
    assert (span.attributes["error.type"], len(span.error or "")) == (reason, 1024)


def test_a_job_without_an_outcome_is_a_cancellation() -> None:
    recorder = SpanRecorder()
    recorder.job.end(None, NOW + 1)
    [span] = recorder.spans
    assert (span.attributes["cicd.pipeline.result"], span.error) == ("cancellation", "job_canceled")


def test_the_parent_of_a_step_is_its_caller() -> None:
    recorder = SpanRecorder()
    recorder.add_events(
        started_event("/box", 1),
        finished_event("/box/+open", 1, 2),
        started_event("/box/script", 2),
        finished_event("/box/script/fetch", 2, 3),
        finished_event("/box/script", 2, 4),
        finished_event("/box", 1, 5),
        finished_event("/last", 5, 6),
        finished_event("/never", 0, 6, status="skipped", started_at=None),
    )
    recorder.job.end(Outcome(state="success"), NOW + 9)
    spans = recorder.by_name()
    assert set(spans) == {"open", "fetch", "script", "box", "last", "unit"}
    job, box = spans["unit"].span_id, spans["box"].span_id
    assert {name: span.parent_id for name, span in spans.items()} == {
        "open": box,
        "fetch": spans["script"].span_id,
        "script": box,
        "box": job,
        "last": job,
        "unit": "",
    }
    assert len({span.trace_id for span in recorder.spans}) == 1
    assert (spans["fetch"].started_at, spans["fetch"].ended_at) == (NOW + 2, NOW + 3)


def test_attributes_of_a_step() -> None:
    recorder = SpanRecorder()
    resolved = {"reference": "builtin://cache@1.0.0", "digest": "sha256:ab", "commit": None, "version": "1.0.0"}
    policy = {"decision": "allowed", "rule": "", "enforced": ["memory"], "advisory": []}
    usage = {"cpu_user_seconds": 0.5, "max_rss_bytes": None, "io_read_bytes": 12}
    event = finished_event(
        "/a", 0, 1, status="failure", exit_code=3, error="exit status 3", error_kind="exit", fault="user"
    )
    recorder.add_events(
        event
        | {"resolved": resolved, "policy": policy, "usage": usage, "origin": "user", "environment": "/box"}
        | {"inputs": {"password": "x"}, "outputs": {"big": "x"}, "env": {"A": "x"}}
    )
    [span] = recorder.spans
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
def test_the_result_of_a_step(end: dict[str, Any], result: str) -> None:
    recorder = SpanRecorder()
    recorder.add_events(finished_event("/a", 0, 1, **end))
    [span] = recorder.spans
    assert span.attributes["cicd.pipeline.task.run.result"] == result


def test_each_attempt_is_a_span_with_its_own_steps() -> None:
    recorder = SpanRecorder()
    recorder.add_events(
        started_event("/a", 0, attempt=1),
        finished_event("/a/x", 0, 1),
        finished_event("/a", 0, 1, attempt=1, status="failure", retried=True),
        started_event("/a", 2, attempt=2),
        finished_event("/a/y", 2, 3),
        finished_event("/a", 2, 3, attempt=2),
    )
    x, first, y, second = recorder.spans
    assert (x.parent_id, y.parent_id) == (first.span_id, second.span_id)
    assert first.span_id != second.span_id


def test_a_step_that_never_started_has_no_duration() -> None:
    recorder = SpanRecorder()
    recorder.add_events(
        finished_event("/a", 0, 4, started_at=None, status="failure", error="denied", error_kind="policy")
    )
    [span] = recorder.spans
    assert (span.started_at, span.ended_at, span.error) == (NOW + 4, NOW + 4, "denied")


def test_repeated_events_give_the_same_spans() -> None:
    """A manager that continues a job after a restart reads the same events again."""
    events = [started_event("/a", 0), finished_event("/a/b", 0, 1), finished_event("/a", 0, 2)]
    recorders = [SpanRecorder(), SpanRecorder()]
    for recorder in recorders:
        recorder.add_events(*events)
        recorder.job.end(Outcome(state="success"), NOW + 3)
    assert recorders[0].spans == recorders[1].spans


def test_results_are_used_once_and_in_order() -> None:
    recorder = SpanRecorder()
    document = json.dumps(finished_event("/a", 0, 1)).encode()
    for seq in (2, 1, 1, 0):
        recorder.job.on_result(seq, document)
    assert (len(recorder.spans), recorder.job.next_seq) == (1, 2)


@pytest.mark.parametrize("document", [b"", b"[]", b'{"event": 5}', b'{"event": "finished", "status": "success"}'])
def test_an_unreadable_result_has_no_span(document: bytes) -> None:
    recorder = SpanRecorder()
    recorder.job.on_result(1, document)
    assert (recorder.spans, recorder.job.next_seq) == ([], 2)


def test_jobs_of_a_pipeline_are_one_trace() -> None:
    first, second = SpanRecorder().job.context, SpanRecorder(key="8-def", job_id=8).job.context
    assert first.trace_id == second.trace_id
    assert first.span_id != second.span_id
    assert SpanRecorder(a_payload(pipeline=4)).job.context.trace_id != first.trace_id
    assert SpanRecorder(url="https://other.example").job.context.trace_id != first.trace_id
    assert SpanRecorder(a_payload(CI_PIPELINE_CREATED_AT="2026-01-01")).job.context.trace_id != first.trace_id


def test_a_job_joins_the_trace_of_its_traceparent_variable() -> None:
    recorder = SpanRecorder(a_payload(TRACEPARENT=TRACEPARENT))
    recorder.job.end(Outcome(state="success"), NOW + 1)
    [span] = recorder.spans
    assert f"00-{span.trace_id}-{span.parent_id}-01" == TRACEPARENT
    variables = [JobVariable(key="A", value="1"), JobVariable(key="TRACEPARENT", value=TRACEPARENT)]
    own = JobVariable(key="TRACEPARENT", value=f"00-{span.trace_id}-{span.span_id}-01")
    assert recorder.job.with_traceparent(variables) == [variables[0], own]


def test_a_job_of_an_unsampled_trace_has_no_spans() -> None:
    recorder = SpanRecorder(a_payload(TRACEPARENT=TRACEPARENT[:-1] + "0"))
    recorder.add_events(started_event("/a", 0), finished_event("/a", 0, 1))
    recorder.job.end(Outcome(state="success"), NOW + 1)
    assert recorder.spans == []
    variables = [JobVariable(key="TRACEPARENT", value=TRACEPARENT)]
    assert recorder.job.with_traceparent(variables) == variables


@pytest.mark.parametrize(
    ("stage", "variables", "kind"),
    [("Build", {}, "build"), ("lint", {}, "lint"), ("ship", {"CI_ENVIRONMENT_NAME": "production"}, "deploy")],
)
def test_the_type_of_a_job(stage: str, variables: dict[str, Any], kind: str) -> None:
    recorder = SpanRecorder(a_payload(stage, **variables))
    recorder.job.end(Outcome(state="success"), NOW)
    assert recorder.spans[0].attributes["cicd.pipeline.task.type"] == kind


def test_an_invalid_endpoint_disables_the_export() -> None:
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": "nowhere"}
    assert find_exporter(settings, VirtualClock(), lambda outcome, number: None, own_id="s_1") is None
