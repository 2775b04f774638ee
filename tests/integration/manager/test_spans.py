"""Spans of jobs of a real manager and agent, as received by an OTLP receiver."""

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from tests.support.runners.manager_harness import ManagerHarness
from tests.support.servers.otlp_receiver import OtlpReceiver

from remuda.steps.language.escaping import escape
from remuda.testing.coordinator import Coordinator

LOCAL_STEP = r"""spec:
  outputs: {said: {type: string}}
---
run:
  - name: say
    script: echo hello; echo '{"name":"said","value":"hi"}' >>"$REMUDA_OUTPUTS"
  - name: fail
    script: exit 7
outputs: {said: "${{ steps.say.outputs.said }}"}
"""
NESTED = json.dumps(
    [
        {"name": "make", "script": f"mkdir made; cat >made/func.yml <<'END'\n{escape(LOCAL_STEP)}END\n"},
        {"name": "call", "step": "./made"},
    ]
)


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    await receiver.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    yield receiver
    await receiver.stop()


async def test_spans_of_every_step(harness: ManagerHarness, coordinator: Coordinator, receiver: OtlpReceiver) -> None:
    async with harness.manager():
        job = await coordinator.enqueue(run=NESTED, steps=[])
        await coordinator.until_over(job)
    assert job.status == "failed"
    [root] = receiver.spans_named("test")
    [call], [make] = receiver.spans_named("call"), receiver.spans_named("make")
    [say], [fail] = receiver.spans_named("say"), receiver.spans_named("fail")
    assert {span.trace_id for span in receiver.spans} == {root.trace_id}
    assert (root.kind, root.parent_id) == (2, "")
    assert (make.parent_id, call.parent_id) == (root.span_id, root.span_id)
    assert (say.parent_id, fail.parent_id) == (call.span_id, call.span_id)
    assert root.started <= make.started <= make.ended <= call.started <= say.started <= fail.ended <= root.ended
    assert (say.error, fail.error) == (None, "exit status 7")
    assert fail.attributes["process.exit.code"] == 7
    assert call.attributes["remuda.step.digest"].startswith("sha256:")
    assert root.attributes["cicd.pipeline.task.run.result"] == "failure"
    assert root.attributes["error.type"] == "script_failure"
    assert root.resource["service.name"] == "remuda-manager"


async def test_processes_of_a_job_can_join_the_trace(
    harness: ManagerHarness, coordinator: Coordinator, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=very-secret")
    async with harness.manager():
        job = await coordinator.enqueue("echo parent=$TRACEPARENT", "env; tr '\\0' '\\n' </proc/$PPID/environ || true")
        await coordinator.until_over(job)
    [root] = receiver.spans_named("test")
    assert f"parent=00-{root.trace_id}-{root.span_id}-01\n".encode() in job.output
    assert b"very-secret" not in job.trace
    assert receiver.requests[0]["api-key"] == "very-secret"


async def test_a_manager_that_dies_leaves_no_gap_in_the_trace(harness: ManagerHarness, receiver: OtlpReceiver) -> None:
    process = await harness.spawn("manager.result_sent")
    job = await harness.coordinator.enqueue("until [ -e go ]; do sleep 0.1; done", "echo went")
    await process.wait()
    work_dir = harness.work_dir
    (work_dir / "go").touch()
    async with harness.manager():
        await harness.coordinator.until_over(job)
    assert job.status == "success"
    [root] = receiver.spans_named("test")
    [script] = {span.span_id: span for span in receiver.spans_named("step_script")}.values()
    assert (script.parent_id, script.trace_id) == (root.span_id, root.trace_id)


async def test_a_failing_receiver_does_not_delay_jobs(harness: ManagerHarness, receiver: OtlpReceiver) -> None:
    receiver.answers.extend([web.Response(status=503)] * 100)
    async with harness.manager():
        job = await harness.coordinator.enqueue("echo hello")
        await harness.coordinator.until_over(job)
    assert job.status == "success"
    assert receiver.spans == []


async def test_invalid_settings_do_not_prevent_jobs(harness: ManagerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "not an address")
    async with harness.manager():
        job = await harness.coordinator.enqueue("echo parent=$TRACEPARENT.")
        await harness.coordinator.until_over(job)
    assert b"parent=.\n" in job.output


async def test_jobs_of_a_server_without_results_have_spans_too(harness: ManagerHarness, receiver: OtlpReceiver) -> None:
    harness.coordinator.is_remuda = False
    async with harness.manager():
        job = await harness.coordinator.enqueue("echo hello")
        await harness.coordinator.until_over(job)
    assert job.results == []
    [root], [script] = receiver.spans_named("test"), receiver.spans_named("step_script")
    assert script.parent_id == root.span_id
