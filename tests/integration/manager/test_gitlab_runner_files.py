"""Configurations of gitlab-runner's users run jobs: only addresses, tokens and paths are those of the test."""

import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runners.manager_bench import ManagerBench
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine

from remuda.manager.config.load import load
from remuda.testing.coordinator import RUNNER_TOKEN, ServerJob

FOLDER = Path(__file__).parents[2] / "data" / "gitlab-runner"
RUN = '#!/bin/bash\nshift $(($# - 2))\nbash "$1" || exit "$BUILD_FAILURE_EXIT_CODE"\n'


def adapted(bench: ManagerBench, name: str, **changes: str) -> str:
    """The file's text for the bench; the first runner is the server's, further ones are left out."""
    text = (FOLDER / name).read_text()
    head, *sections = re.split(r"^(?=\[\[runners\]\])", text, flags=re.MULTILINE)
    section = re.sub(
        r"^(\s*)url = .*$", rf'\1url = "{bench.coordinator.url}"', sections[0], count=1, flags=re.MULTILINE
    )
    section = re.sub(r"^(\s*)token = .*$", rf'\1token = "{RUNNER_TOKEN}"', section, count=1, flags=re.MULTILINE)
    head = head.replace(":9252", "127.0.0.1:0")
    for old, new in changes.items():
        assert re.search(old, section), old
        section = re.sub(old, new, section)
    return head + section


async def ran(bench: ManagerBench, text: str, *script: str, **changes: object) -> ServerJob:
    """A job, with this configuration."""
    bench.config.write_text(text)
    async with bench.manager():
        job = await bench.coordinator.enqueue(*script, **changes)
        await bench.coordinator.until_over(job, seconds=60)
    return job


@pytest.mark.parametrize("name", ["shell-single.toml", "shell-two-servers.toml", "cache-gcs.toml", "monitored.toml"])
async def test_jobs_on_this_machine(bench: ManagerBench, name: str) -> None:
    job = await ran(bench, adapted(bench, name), "echo it runs in $PWD", "echo $MAKEFLAGS")
    assert job.status == "success", bytes(job.trace)
    assert b"it runs in " in job.output
    if name == "shell-two-servers.toml":
        assert b"-j2" in job.output
        assert b"on " in job.output


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerEngine]:
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    with DockerEngine() as running:
        yield running


@pytest.mark.parametrize("name", ["docker-basic.toml", "docker-in-docker.toml", "cache-s3.toml"])
async def test_jobs_in_containers(bench: ManagerBench, engine: DockerEngine, name: str) -> None:
    changes = {'image = ".*"': f'host = "{engine.host}"\n    pull_policy = "never"\n    image = "{BUSYBOX}"'}
    has_init = name == "docker-in-docker.toml" and shutil.which("docker-init") is not None
    if name == "docker-in-docker.toml":
        # An engine inside of a sandbox has not all rights that it could give away.
        changes |= {"privileged = true": "privileged = false"}
        changes |= {} if has_init else {"FF_USE_INIT_WITH_DOCKER_EXECUTOR = true": ""}
    job = await ran(bench, adapted(bench, name, **changes), "test ! -e /etc/debian_version", "cat /proc/1/comm")
    assert job.status == "success", bytes(job.trace)
    assert (b"\ndocker-init\n" in job.output) == has_init, job.output


async def test_jobs_of_a_driver(bench: ManagerBench, tmp_path: Path) -> None:
    driver = tmp_path / "driver"
    driver.mkdir()
    for name, text in (("config", "#!/bin/sh\necho '{}'\n"), ("prepare", "#!/bin/sh\n"), ("run", RUN)):
        (driver / f"{name}.sh").write_text(text)
    (driver / "cleanup.sh").write_text(f"#!/bin/sh\ntouch {driver}/cleaned\n")
    for program in driver.glob("*.sh"):
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    text = adapted(
        bench,
        "custom-driver.toml",
        **{"/opt/driver": str(driver), '"/builds"': f'"{tmp_path}/builds"', '"/cache"': f'"{tmp_path}/cache"'},
    )
    job = await ran(bench, text, "echo driven in $PWD")
    assert job.status == "success", bytes(job.trace)
    assert b"driven in " in job.output
    assert (driver / "cleaned").exists()


def test_what_was_left_out_is_read_anyway(bench: ManagerBench) -> None:
    bench.config.write_text((FOLDER / "shell-two-servers.toml").read_text())
    assert [runner.limit for runner in load(bench.config).config.runners] == [4, 2]
