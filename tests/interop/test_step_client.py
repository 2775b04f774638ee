"""The real client of GitLab's step runner runs jobs on our agent and, for comparison, on the real step runner.

`make interop` builds client and step runner from the Go module (0.4.0, the newest that is available as a module).
"""

import base64
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto
from tests.support.built_programs import require_built

from remuda.testing.agent_process import AgentProcess, plain_lines
from remuda.wire.agent_client import socket_of
from remuda.wire.proto import step_runner_pb2

PROGRAMS = Path(__file__).parents[2] / "build" / "interop"
CLIENT, STEP_RUNNER = PROGRAMS / "step-client", PROGRAMS / "step-runner"
STATES = ("unspecified", "running", "success", "failure", "cancelled")
STEP = """spec:
  inputs:
    code: {type: number, default: 0}
---
exec:
  command: [sh, -c, "echo one; echo two; exit ${{inputs.code}}"]
"""


class Client:
    """The Go program. It makes one call for each line of its stdin."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"Method": method} | values).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer | {"log": base64.b64decode(answer.get("log", ""))}


@contextmanager
def start_client(*arguments: str) -> Iterator[Client]:
    require_built(CLIENT)
    with subprocess.Popen([CLIENT, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Client(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(tmp_path / "data") as process:
        await process.start()
        yield process


@pytest.fixture
def client(agent: AgentProcess) -> Iterator[Client]:
    with start_client("unix", str(socket_of(agent.data))) as connection:
        yield connection


def a_request(folder: Path, script: str, job_id: str = "1001", **values: Any) -> dict[str, Any]:
    """A request as gitlab-runner sends it: without environment, in the project's folder, with an empty spec."""
    steps = f"{{}}\n---\n{json.dumps({'run': [{'name': 'hello', 'script': script}]})}"
    return {"Id": job_id, "WorkDir": str(folder), "BuildDir": str(folder), "Steps": steps} | values


def test_run_and_follow(client: Client, tmp_path: Path) -> None:
    variables = [
        {"Key": "NAME", "Value": "job"},
        {"Key": "TOKEN", "Value": "hush-hush", "Masked": True},
        {"Key": "FILE", "Value": "content", "File": True},
    ]
    script = 'pwd; echo "$NAME $TOKEN"; cat "$FILE"; echo; exit 3'
    request = a_request(tmp_path / "project", script, Variables=variables)
    answer = client.call("run and follow", Request=request)
    assert answer["code"] == "OK"
    (job,) = answer["jobs"]
    assert (job["Id"], STATES[job["State"]]) == ("1001", "failure")
    assert job["Message"].endswith("exit status 3")
    assert job["StartTime"] < job["EndTime"]
    assert plain_lines(answer["log"], b"01O") == [str(tmp_path / "project").encode(), b"job [MASKED]", b"content"]
    # The client has closed the job.
    assert client.call("list")["code"] == "OK"
    assert "jobs" not in client.call("list")


def test_calls_one_by_one(client: Client, tmp_path: Path) -> None:
    request = a_request(tmp_path, "echo begin; while [ ! -e go ]; do sleep 0.05; done; seq 1 2000")
    assert client.call("run", Request=request)["code"] == "OK"
    assert client.call("run", Request=request | {"Steps": "not even parsed"})["code"] == "OK"
    (job,) = client.call("status", ID="1001")["jobs"]
    assert STATES[job["State"]] == "running"
    assert [listed["Id"] for listed in client.call("list")["jobs"]] == ["1001"]
    (tmp_path / "go").touch()
    whole = client.call("logs", ID="1001")
    assert plain_lines(whole["log"], b"01O") == [b"begin", *(str(n).encode() for n in range(1, 2001))]
    assert whole["written"] == len(whole["log"])
    # After a broken connection a reader continues at the offset that it has counted itself.
    broken = client.call("logs", ID="1001", Stop=len(whole["log"]) // 3)
    assert broken["error"].endswith("enough")
    rest = client.call("logs", ID="1001", Offset=broken["written"])
    assert broken["log"] + rest["log"] == whole["log"]
    assert rest["written"] == len(whole["log"])
    for _ in range(2):
        assert client.call("close", ID="1001")["code"] == "OK"
    answer = client.call("status", ID="1001")
    assert answer["code"] == "NotFound"
    assert answer["error"].endswith('no job with id "1001"')


def test_errors_have_codes(client: Client, tmp_path: Path) -> None:
    request = a_request(tmp_path, "echo") | {"Steps": "{}\n---\nrun: [{name: a, scrip: b}]"}
    answer = client.call("run", Request=request)
    assert answer["code"] == "InvalidArgument"
    assert "loading step: reading steps" in answer["error"]
    assert client.call("logs", ID="1001")["code"] == "NotFound"
    assert client.call("logs", ID="../../x")["code"] == "NotFound"
    assert client.call("close", ID="../../x")["code"] == "OK"


def test_a_request_above_4_mib(client: Client, tmp_path: Path) -> None:
    answer = client.call("run and follow", Request=a_request(tmp_path, f": {'x' * 6_000_000}\necho done"))
    assert STATES[answer["jobs"][0]["State"]] == "success"
    assert plain_lines(answer["log"], b"01O") == [b"done"]


def test_through_the_proxy(agent: AgentProcess, tmp_path: Path) -> None:
    with start_client("command", sys.executable, "-m", "remuda.steps", "proxy", "--data", str(agent.data)) as client:
        answer = client.call("run and follow", Request=a_request(tmp_path, "seq 1 20000"))
        assert STATES[answer["jobs"][0]["State"]] == "success"
        assert len(plain_lines(answer["log"], b"01O")) == 20000


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A connection to one of the two servers of the protocol."""

    client: Client
    is_real: bool


@pytest.fixture(params=["ours", "real"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "ours":
        agent = request.getfixturevalue("agent")
        with start_client("unix", str(socket_of(agent.data))) as client:
            yield Server(client=client, is_real=False)
        return
    require_built(STEP_RUNNER)
    (tmp_path / "t").mkdir()
    process = subprocess.Popen(
        [STEP_RUNNER, "serve"], env=os.environ | {"TMPDIR": str(tmp_path / "t")}, stdout=subprocess.DEVNULL
    )
    try:
        with start_client("unix", str(tmp_path / "t" / "step-runner.sock")) as client:
            yield Server(client=client, is_real=True)
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.parametrize(("code", "state"), [(0, "success"), (7, "failure")])
def test_both_servers_answer_the_same_calls_alike(server: Server, tmp_path: Path, code: int, state: str) -> None:
    (tmp_path / "greet").mkdir()
    (tmp_path / "greet" / "step.yml").write_text(STEP)
    run = {"run": [{"name": "greet", "step": "./greet", "inputs": {"code": code}}]}
    request = a_request(tmp_path, "", Steps=f"{{}}\n---\n{json.dumps(run)}")
    client = server.client
    # The first call of the client waits until the server is ready.
    assert client.call("run", Request=request)["code"] == "OK"
    assert client.call("run", Request=request | {"Steps": "not even parsed"})["code"] == "OK"
    log = client.call("logs", ID="1001")["log"]
    lines = log.split(b"\n") if server.is_real else plain_lines(log, b"01O")
    assert [line for line in lines if line in (b"one", b"two")] == [b"one", b"two"]
    (job,) = client.call("status", ID="1001")["jobs"]
    assert STATES[job["State"]] == state
    assert job["Message"] == "" if code == 0 else job["Message"].endswith(f"exit status {code}")
    assert client.call("status", ID="other")["error"].endswith('no job with id "other"')
    assert client.call("close", ID="other")["code"] == "OK"
    assert client.call("close", ID="1001")["code"] == "OK"
    assert client.call("status", ID="1001")["error"].endswith('no job with id "1001"')


def test_the_protocol_is_that_of_the_real_client() -> None:
    """Our protocol has every message, field, number, type and enum value of 0.4, and additions up to 0.11."""
    printed = subprocess.run([CLIENT, "descriptor"], check=True, capture_output=True).stdout
    theirs = FileDescriptorProto.FromString(printed)
    ours = FileDescriptorProto()
    step_runner_pb2.DESCRIPTOR.CopyToProto(ours)
    assert theirs.package == ours.package == "proto"
    assert not missing_messages(theirs.message_type, ours.message_type)
    assert not missing_enums(theirs.enum_type, ours.enum_type)
    (their_service,), (our_service,) = theirs.service, ours.service
    our_methods = {method.name: method for method in our_service.method}
    assert all(our_methods[method.name] == method for method in their_service.method)
    assert set(our_methods) - {method.name for method in their_service.method} == {"Cancel"}


def missing_messages(theirs: Sequence[DescriptorProto], ours: Sequence[DescriptorProto]) -> list[str]:
    our_messages = {message.name: message for message in ours}
    missing = [message.name for message in theirs if message.name not in our_messages]
    for message in theirs:
        if message.name in our_messages:
            own = our_messages[message.name]
            fields = {(field.name, field.number, field.type, field.label, field.type_name) for field in own.field}
            missing += [
                f"{message.name}.{field.name}"
                for field in message.field
                if (field.name, field.number, field.type, field.label, field.type_name) not in fields
            ]
            missing += missing_messages(message.nested_type, own.nested_type)
            missing += missing_enums(message.enum_type, own.enum_type)
    return missing


def missing_enums(theirs: Sequence[EnumDescriptorProto], ours: Sequence[EnumDescriptorProto]) -> list[str]:
    our_values = {(enum.name, value.name, value.number) for enum in ours for value in enum.value}
    their_values = {(enum.name, value.name, value.number) for enum in theirs for value in enum.value}
    return sorted(map(str, their_values - our_values))
