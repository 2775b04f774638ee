"""An environment plugin in Go, which `make interop` builds, passes the conformance check and runs a job."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.built_programs import require_built
from tests.support.environment_plugins import kill_agents, plugin_environment

from remuda.environments.conformance import check_plugin
from remuda.manager.environments.port import JobPlace
from remuda.testing.agent_process import PROGRAM, follow
from remuda.wire.agent_client import JobStart
from remuda.wire.proto import environment_pb2 as pb

BUILT = Path(__file__).parents[2] / "build/interop/environment-plugin"
STEPS = '{"spec": {"remuda": 1}}\n---\n{"run": [{"name": "hello", "script": "echo through Go"}]}'


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    require_built(BUILT)
    descriptor = tmp_path / "descriptor"
    descriptor.write_bytes(pb.DESCRIPTOR.serialized_pb)
    program = tmp_path / "go-plugin"
    program.write_text(f"#!/bin/sh\nexport PROTOCOL='{descriptor}' AGENT='{' '.join(PROGRAM)}'\nexec {BUILT}\n")
    program.chmod(0o755)
    yield program
    kill_agents(tmp_path)


async def test_a_go_plugin_passes_the_check_in_both_protocol_versions(plugin: Path, tmp_path: Path) -> None:
    results = [result async for result in check_plugin(str(plugin), {}, tmp_path / "kept")]
    assert [result for result in results if result.problem] == []
    assert {result.name[-2] for result in results[1:]} == {"1", "2"}


async def test_a_manager_runs_a_job_with_a_go_plugin(plugin: Path, tmp_path: Path) -> None:
    async with plugin_environment(tmp_path, plugin, {}) as environment:
        place = JobPlace(key="1-abc", runner="abc", slot=0, project="group/project", before_job="echo $REMUDA_JOB")
        machine = await environment.acquire(place)
        prepared = await environment.prepare(place, machine)
        assert await environment.run_hook("before_job", place, machine) == "1\n"
        async with await environment.connect(machine) as client:
            await client.start(JobStart(id=place.key, work_dir=prepared.work_dir, steps=STEPS))
            seen = await follow(client, place.key)
            await client.close_job(place.key)
        assert b"through Go" in seen.lines
        await environment.clean_up(place, machine)
