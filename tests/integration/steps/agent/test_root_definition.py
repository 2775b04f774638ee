"""The definition that a request itself contains: its `env`, inputs and outputs count like those of any other step."""

import json
from pathlib import Path
from typing import Any

import pytest
from grpclib import GRPCError
from grpclib.const import Status
from tests.support.step_runner_client import step_runner

from remuda.testing.agent_process import AgentProcess, Seen, follow, run_job, through_deaths
from remuda.wire.agent_client import JobStart
from remuda.wire.proto import step_runner_pb2 as pb

PRINT = 'echo "$GREETING, $WHO from ${{ inputs.place }}"'


def text_of(definition: dict[str, Any], **spec: Any) -> str:
    return f"{json.dumps({'spec': spec})}\n---\n{json.dumps(definition)}"


async def run_text(agent: AgentProcess, folder: Path, text: str) -> tuple[pb.Status, Seen]:
    """Run a definition through GitLab's service. Returns its status, and log and results from the agent's own."""
    async with step_runner(agent) as stub:
        await stub.Run(pb.RunRequest(id="7", work_dir=str(folder), steps=text, env={"WHO": "of the request"}))
        async with agent.client() as client:
            seen = await follow(client, "7")
        (status,) = (await stub.Status(pb.StatusRequest(id="7"))).jobs
        return status, seen


async def test_environment_and_defaults_reach_all_steps(agent: AgentProcess, tmp_path: Path) -> None:
    export = 'printf \'{"name": "WHO", "value": "of an export"}\\n\' >>"$REMUDA_EXPORTS"'
    text = text_of(
        {
            "env": {"GREETING": "hello", "WHO": "${{ inputs.who }}"},
            "run": [
                {"name": "one", "script": PRINT},
                {"name": "export", "script": export},
                {"name": "own", "script": PRINT, "env": {"GREETING": "${{ env.GREETING }} again"}},
            ],
        },
        inputs={"who": {"type": "string", "default": "Ada"}, "place": {"type": "string", "default": "here"}},
    )
    status, seen = await run_text(agent, tmp_path, text)
    assert status.status == pb.StepResult.success, status.message
    assert seen.lines == [b"hello, Ada from here", b"hello again, Ada from here"]


async def test_a_required_input_is_refused(agent: AgentProcess, tmp_path: Path) -> None:
    """A request cannot give its own definition inputs, so each needs a default."""
    text = text_of({"run": [{"name": "a", "script": "echo ran"}]}, inputs={"who": {"type": "string"}})
    async with step_runner(agent) as stub:
        with pytest.raises(GRPCError, match=r'loading step: reading steps: .*input "who" required') as refused:
            await stub.Run(pb.RunRequest(id="7", work_dir=str(tmp_path), steps=text))
        assert refused.value.status is Status.INVALID_ARGUMENT
        assert list((await stub.Status(pb.StatusRequest())).jobs) == []


WRITE = 'printf \'{"name": "%s", "value": %s}\\n\' size 3 >>"$REMUDA_OUTPUTS"'


async def test_outputs_are_reported(agent: AgentProcess, tmp_path: Path) -> None:
    text = text_of(
        {
            "run": [{"name": "count", "script": WRITE}],
            "outputs": {"size": "${{ steps.count.outputs.size }}", "key": "${{ inputs.secret }}"},
        },
        inputs={"secret": {"type": "string", "default": "hidden-value", "sensitive": True}},
        outputs={"size": {"type": "number"}, "key": {"type": "string"}, "rest": {"type": "string", "default": "none"}},
    )
    status, seen = await run_text(agent, tmp_path, text)
    assert status.status == pb.StepResult.success, status.message
    [event] = [result for result in seen.results if result["event"] == "outputs"]
    assert event["outputs"] | {"key": ""} == {"size": 3, "rest": "none", "key": ""}
    assert "hidden-value" not in json.dumps(seen.results)


async def test_a_delegate_gives_the_outputs(agent: AgentProcess, tmp_path: Path) -> None:
    text = text_of({"run": [{"name": "count", "script": WRITE}], "delegate": "count"}, outputs="delegate")
    _, seen = await run_text(agent, tmp_path, text)
    assert [result["outputs"] for result in seen.results if result["event"] == "outputs"] == [{"size": 3}]


@pytest.mark.parametrize(
    ("outputs", "declared", "message"),
    [
        ({"size": "${{ steps.a.outputs.nothing }}"}, {"size": {"type": "string"}}, "nothing"),
        ({"size": "x"}, {"size": {"type": "number"}}, 'output "size": a number is needed, not a string'),
        ({}, {"size": {"type": "number"}}, 'output "size" was not written and has no default'),
    ],
    ids=["expression", "type", "missing"],
)
async def test_invalid_outputs_fail_the_job(
    agent: AgentProcess, tmp_path: Path, outputs: dict[str, str], declared: dict[str, Any], message: str
) -> None:
    text = text_of({"run": [{"name": "a", "script": "echo ran"}], "outputs": outputs}, outputs=declared)
    status, seen = await run_text(agent, tmp_path, text)
    assert status.status == pb.StepResult.failure
    assert status.message.startswith("outputs: ")
    assert message in status.message
    assert seen.check().reason == "script_failure"
    assert f"ERROR: Job failed: {status.message}".encode() in seen.log


async def test_an_invalid_variable_fails_the_job(agent: AgentProcess, tmp_path: Path) -> None:
    text = text_of({"env": {"A": "${{ vars.NOPE }}"}, "run": [{"name": "a", "script": "echo ran"}]})
    status, seen = await run_text(agent, tmp_path, text)
    assert (status.status, seen.check().reason) == (pb.StepResult.failure, "script_failure")
    assert "NOPE" in status.message
    assert b"ran" not in seen.lines


async def test_outputs_are_not_evaluated_after_a_failure(agent: AgentProcess, tmp_path: Path) -> None:
    text = text_of({"run": [{"name": "a", "script": "exit 4"}], "outputs": {"x": "${{ steps.b.outputs.y }}"}})
    status, _ = await run_text(agent, tmp_path, text)
    assert status.message == 'step "a": exit status 4'


@pytest.mark.parametrize("point", ["agent.outputs_stored", "agent.job_ended"])
async def test_outputs_are_stored_once_if_the_agent_dies(tmp_path: Path, point: str) -> None:
    text = text_of(
        {"run": [{"name": "a", "script": "echo ran"}], "outputs": {"x": "1"}}, outputs={"x": {"type": "string"}}
    )
    async with AgentProcess(tmp_path / "data") as process:
        await process.start(kill_point=point)
        seen = await through_deaths(process, JobStart(id="1", work_dir=str(tmp_path / "work"), steps=text))
    assert seen.end is not None
    assert seen.end.status == "success", seen.log
    assert [result["outputs"] for result in seen.results if result["event"] == "outputs"] == [{"x": "1"}]


async def test_a_definition_with_one_command_has_its_defaults(agent: AgentProcess, tmp_path: Path) -> None:
    text = text_of(
        {"env": {"A": "${{ inputs.a }}"}, "exec": {"command": ["sh", "-c", "echo $A"]}},
        inputs={"a": {"type": "string", "default": "value"}},
    )
    (tmp_path / "work").mkdir()
    seen = await run_job(agent, JobStart(id="1", work_dir=str(tmp_path / "work"), steps=text))
    assert seen.check().status == "success"
    assert b"value" in seen.lines
