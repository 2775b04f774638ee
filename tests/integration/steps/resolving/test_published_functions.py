"""The steps function/oci/build and function/oci/publish with a real registry; published functions are then called."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from tests.support.step_jobs import Build
from tests.support.step_packages import (
    INDEX,
    PASSWORD,
    STEP_LAYER,
    USER,
    StepRegistry,
    has_registry,
    misconfigured_registry,
)

from remuda.steps.resolving.images import host_platform
from remuda.testing.agent_process import AgentProcess, Seen, run_job, steps_text
from remuda.wire.agent_client import JobVariable

FUNC = """spec:
  inputs: {who: {type: string}}
---
exec: {command: ["${{ func_dir }}/bin/hello", "${{ inputs.who }}"]}
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for name in ("here", "other"):
        (folder / name).mkdir(parents=True)
        (folder / name / "hello").write_text(f"#!/bin/sh\necho hello $1 from {name}\n")
        (folder / name / "hello").chmod(0o755)
    (folder / "func.yml").write_text(FUNC)
    return folder


def build_step(version: str = "1.0.0", **inputs: Any) -> dict[str, Any]:
    files = {
        "common": {"files": {"func.yml": "func.yml"}},
        "platforms": {
            host_platform(): {"files": {"bin/hello": "here/hello"}},
            "plan9/mips": {"files": {"bin": "other"}},
        },
    }
    return {"name": "build", "func": "builtin://function/oci/build", "inputs": {"version": version} | files | inputs}


def publish_step(repository: str, **inputs: Any) -> dict[str, Any]:
    values = {"archive": "${{ steps.build.outputs.archive }}", "to_repository": repository} | inputs
    return {"name": "publish", "func": "builtin://function/oci/publish", "inputs": values}


def outputs_of(seen: Seen, path: str) -> dict[str, Any]:
    [result] = [event for event in seen.results if event["event"] == "finished" and event["path"] == path]
    outputs: dict[str, Any] = result["outputs"]
    return outputs


async def test_a_published_function_can_be_called(
    agent: AgentProcess, a_job: Build, work: Path, registry: StepRegistry
) -> None:
    repository = f"{registry.host}/tools/hello"
    call = {"name": "call", "func": f"{repository}:1", "inputs": {"who": "you"}}
    seen = await run_job(agent, a_job(steps=steps_text(build_step("1.2.3"), publish_step(repository), call)))
    assert seen.check().status == "success", seen.log
    assert b"hello you from here" in seen.lines
    outputs = outputs_of(seen, "/publish")
    assert outputs["tags"] == ["1.2.3", "1.2", "1", "latest"]
    assert outputs["digest"] == outputs_of(seen, "/build")["digest"]
    index = registry.call("GET", "/v2/tools/hello/manifests/latest", Accept=INDEX)
    assert index.headers["Docker-Content-Digest"] == outputs["digest"]
    entries = json.loads(index.body)["manifests"]
    assert sorted(entry["platform"]["os"] for entry in entries) == ["linux", "plan9"]
    manifest = registry.call("GET", f"/v2/tools/hello/manifests/{entries[0]['digest']}", Accept=entries[0]["mediaType"])
    assert {layer["mediaType"] for layer in json.loads(manifest.body)["layers"]} == {STEP_LAYER}


async def test_a_version_is_published_once_and_older_ones_keep_the_tags_of_newer_ones(
    agent: AgentProcess, a_job: Build, work: Path, registry: StepRegistry
) -> None:
    repository = f"{registry.host}/tools/hello"
    tags = []
    for number, version in enumerate(("1.3.0", "1.2.3", "2.0.0-rc1")):
        job = a_job(str(number), steps=steps_text(build_step(version), publish_step(repository)))
        seen = await run_job(agent, job)
        tags.append(outputs_of(seen, "/publish")["tags"])
    assert tags == [["1.3.0", "1.3", "1", "latest"], ["1.2.3", "1.2"], ["2.0.0-rc1"]]
    again = publish_step(repository, archive="function-image.tar")
    assert (await run_job(agent, a_job("again", steps=steps_text(again)))).check().status == "success"
    (work / "here/hello").write_text("changed")
    changed = a_job("changed", steps=steps_text(build_step("1.3.0"), publish_step(repository)))
    seen = await run_job(agent, changed)
    assert seen.check().status == "failure"
    assert any(b"is published already, with other content" in line for line in seen.lines)


async def test_a_registry_with_a_login(
    agent: AgentProcess, a_job: Build, work: Path, closed_registry: StepRegistry
) -> None:
    repository = f"{closed_registry.host}/tools/hello"
    steps = steps_text(build_step("1.0.0"), publish_step(repository))
    seen = await run_job(agent, a_job("anonymous", steps=steps))
    assert seen.check().status == "failure"
    assert any(b"set DOCKER_AUTH_CONFIG" in line for line in seen.lines)
    login = {"auth": b64encode(f"{USER}:{PASSWORD}".encode()).decode()}
    value = json.dumps({"auths": {closed_registry.host: login}})
    variables = [JobVariable(key="DOCKER_AUTH_CONFIG", value=value)]
    seen = await run_job(agent, a_job("login", steps=steps, variables=variables))
    assert seen.check().status == "success", seen.log


async def test_a_registry_with_tls_that_names_an_upload_address_without_tls(
    agent: AgentProcess, a_job: Build, work: Path, tmp_path: Path
) -> None:
    if not has_registry():
        pytest.skip("docker-registry is not installed: make packages")
    name = "registry.example.com"
    with misconfigured_registry(tmp_path / "registry", name) as (proxy, plain_requests, certificate):
        login = {"auth": b64encode(f"{USER}:{PASSWORD}".encode()).decode()}
        variables = [
            JobVariable(key="DOCKER_AUTH_CONFIG", value=json.dumps({"auths": {name: login}})),
            JobVariable(key="CI_SERVER_TLS_CA_FILE", value=certificate.read_text(), file=True),
            *(JobVariable(key=key, value=proxy) for key in ("http_proxy", "https_proxy")),
        ]
        steps = steps_text(build_step("1.0.0"), publish_step(f"{name}/tools/hello"))
        seen = await run_job(agent, a_job(steps=steps, variables=variables))
    assert seen.check().status == "failure"
    [text] = [line for line in seen.lines if b"the registry names" in line]
    assert f"'http://{name}/v2/tools/hello/blobs/uploads/".encode() in text
    assert b"which is not an https address; check its setup" in text
    assert plain_requests == []


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"version": "1.2"}, "must have three numbers"),
        ({"common": {"files": {"func.yml": "missing.yml"}}}, "'missing.yml' does not exist"),
        ({"platforms": {"linux": {}}}, "such as linux/amd64"),
        ({"common": {"file": {}}}, 'must have "files"'),
        ({"archive": "../out.tar"}, "must be a path in the working directory"),
    ],
)
async def test_mistakes_of_a_build(
    agent: AgentProcess, a_job: Build, work: Path, inputs: dict[str, Any], text: str
) -> None:
    seen = await run_job(agent, a_job(steps=steps_text(build_step(**inputs))))
    assert seen.check().status == "failure"
    assert any(text.encode() in line for line in seen.lines)
