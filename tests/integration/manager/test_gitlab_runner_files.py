"""Jobs run with configuration files of gitlab-runner; only addresses, tokens and paths are replaced."""

import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runners.manager_harness import ManagerHarness
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine

from remuda.manager.config.load import load
from remuda.testing.coordinator import RUNNER_TOKEN, ServerJob

FOLDER = Path(__file__).parents[2] / "data" / "gitlab-runner"
RUN = '#!/bin/bash\nshift $(($# - 2))\nbash "$1" || exit "$BUILD_FAILURE_EXIT_CODE"\n'


def adapt(harness: ManagerHarness, name: str, **changes: str) -> str:
    """Return a file with the address and token of the test's server. Only the first runner is used."""
    text = (FOLDER / name).read_text()
    head, *sections = re.split(r"^(?=\[\[runners\]\])", text, flags=re.MULTILINE)
    section = re.sub(
        r"^(\s*)url = .*$", rf'\1url = "{harness.coordinator.url}"', sections[0], count=1, flags=re.MULTILINE
    )
    section = re.sub(r"^(\s*)token = .*$", rf'\1token = "{RUNNER_TOKEN}"', section, count=1, flags=re.MULTILINE)
    head = head.replace(":9252", "127.0.0.1:0")
    for old, new in changes.items():
        assert re.search(old, section), old
        section = re.sub(old, new, section)
    return head + section


async def run_job(harness: ManagerHarness, text: str, *script: str, **changes: object) -> ServerJob:
    """Run a job with this configuration."""
    harness.config.write_text(text)
    async with harness.manager():
        job = await harness.coordinator.enqueue(*script, **changes)
        await harness.coordinator.until_over(job, seconds=60)
    return job


@pytest.mark.parametrize("name", ["shell-single.toml", "shell-two-servers.toml", "cache-gcs.toml", "monitored.toml"])
async def test_jobs_on_this_machine(harness: ManagerHarness, name: str) -> None:
    job = await run_job(harness, adapt(harness, name), "echo it runs in $PWD", "echo $MAKEFLAGS")
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
async def test_jobs_in_containers(harness: ManagerHarness, engine: DockerEngine, name: str) -> None:
    changes = {'image = ".*"': f'host = "{engine.host}"\n    pull_policy = "never"\n    image = "{BUSYBOX}"'}
    has_init = name == "docker-in-docker.toml" and shutil.which("docker-init") is not None
    if name == "docker-in-docker.toml":
        # An engine in a sandbox cannot start privileged containers.
        changes |= {"privileged = true": "privileged = false"}
        changes |= {} if has_init else {"FF_USE_INIT_WITH_DOCKER_EXECUTOR = true": ""}
    job = await run_job(harness, adapt(harness, name, **changes), "test ! -e /etc/debian_version", "cat /proc/1/comm")
    assert job.status == "success", bytes(job.trace)
    assert (b"\ndocker-init\n" in job.output) == has_init, job.output


async def test_jobs_of_a_custom_driver(harness: ManagerHarness, tmp_path: Path) -> None:
    driver = tmp_path / "driver"
    driver.mkdir()
    for name, text in (("config", "#!/bin/sh\necho '{}'\n"), ("prepare", "#!/bin/sh\n"), ("run", RUN)):
        (driver / f"{name}.sh").write_text(text)
    (driver / "cleanup.sh").write_text(f"#!/bin/sh\ntouch {driver}/cleaned\n")
    for program in driver.glob("*.sh"):
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    text = adapt(
        harness,
        "custom-driver.toml",
        **{"/opt/driver": str(driver), '"/builds"': f'"{tmp_path}/builds"', '"/cache"': f'"{tmp_path}/cache"'},
    )
    job = await run_job(harness, text, "echo driven in $PWD")
    assert job.status == "success", bytes(job.trace)
    assert b"driven in " in job.output
    assert (driver / "cleaned").exists()


def test_a_file_with_several_runners_is_read(harness: ManagerHarness) -> None:
    harness.config.write_text((FOLDER / "shell-two-servers.toml").read_text())
    assert [runner.limit for runner in load(harness.config).config.runners] == [4, 2]
