"""Jobs of a real manager and agent, as a receiver of spans sees them."""

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from tests.support.runners.manager_bench import ManagerBench
from tests.support.servers.otlp_receiver import OtlpReceiver

from remuda.steps.language.escaping import escape
from remuda.testing.coordinator import Coordinator

MADE = r"""spec:
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
        {"name": "make", "script": f"mkdir made; cat >made/func.yml <<'END'\n{escape(MADE)}END\n"},
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


async def test_child_spans_for_every_step(
    bench: ManagerBench, coordinator: Coordinator, receiver: OtlpReceiver
) -> None:
    async with bench.manager():
        job = await coordinator.enqueue(run=NESTED, steps=[])
        await coordinator.until_over(job)
    assert job.status == "failed"
    [root] = receiver.named("test")
    [call], [make] = receiver.named("call"), receiver.named("make")
    [say], [fail] = receiver.named("say"), receiver.named("fail")
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


async def test_a_jobs_own_processes_can_join_the_trace(
    bench: ManagerBench, coordinator: Coordinator, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=very-secret")
    async with bench.manager():
        job = await coordinator.enqueue("echo parent=$TRACEPARENT", "env; tr '\\0' '\\n' </proc/$PPID/environ || true")
        await coordinator.until_over(job)
    [root] = receiver.named("test")
    assert f"parent=00-{root.trace_id}-{root.span_id}-01\n".encode() in job.output
    assert b"very-secret" not in job.trace
    assert receiver.requests[0]["api-key"] == "very-secret"


async def test_a_manager_that_dies_leaves_no_gap_in_the_trace(
    bench: ManagerBench, coordinator: Coordinator, receiver: OtlpReceiver
) -> None:
    process = await bench.spawn("manager.result_sent")
    job = await coordinator.enqueue("until [ -e go ]; do sleep 0.1; done", "echo went")
    await process.wait()
    work_dir = bench.work_dir
    (work_dir / "go").touch()
    async with bench.manager():
        await coordinator.until_over(job)
    assert job.status == "success"
    [root] = receiver.named("test")
    [script] = {span.span_id: span for span in receiver.named("step_script")}.values()
    assert (script.parent_id, script.trace_id) == (root.span_id, root.trace_id)


async def test_no_receiver_holds_up_a_job(
    bench: ManagerBench, coordinator: Coordinator, receiver: OtlpReceiver
) -> None:
    receiver.answers.extend([web.Response(status=503)] * 100)
    async with bench.manager():
        job = await coordinator.enqueue("echo hello")
        await coordinator.until_over(job)
    assert job.status == "success"
    assert receiver.spans == []


async def test_settings_that_make_no_sense_hold_up_nothing(
    bench: ManagerBench, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "not an address")
    async with bench.manager():
        job = await coordinator.enqueue("echo parent=$TRACEPARENT.")
        await coordinator.until_over(job)
    assert b"parent=.\n" in job.output


async def test_jobs_of_a_server_that_takes_no_results_have_spans_too(
    bench: ManagerBench, coordinator: Coordinator, receiver: OtlpReceiver
) -> None:
    coordinator.is_remuda = False
    async with bench.manager():
        job = await coordinator.enqueue("echo hello")
        await coordinator.until_over(job)
    assert job.results == []
    [root], [script] = receiver.named("test"), receiver.named("step_script")
    assert script.parent_id == root.span_id
