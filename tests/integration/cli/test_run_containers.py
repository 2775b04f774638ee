"""Jobs of `remuda run` and `remuda up` that name `image` or `services`, with a real container engine and without."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.conftest import World
from tests.integration.cli.test_up import Platform
from tests.support.servers.docker_engine import BUSYBOX, DEBIAN, DockerEngine
from tests.support.servers.podman_engine import PodmanEngine

from remuda.testing.waiting import wait_until

MakePipeline = Callable[[str], Path]
DOCKER_SOCKET = "/var/run/docker.sock"
NO_ENGINE = "unix:///nowhere/docker.sock"
BOTH = f"""
stages: [one, two]
in image:
  stage: one
  image: {BUSYBOX}
  script: ["test ! -e /etc/debian_version", "mkdir out && echo made by $(id -u) > out/file"]
  artifacts: {{paths: [out]}}
on machine:
  stage: two
  script: [cat out/file, test -e /etc/passwd]
"""
LONG = f"""
job:
  image: {BUSYBOX}
  services: [{{name: {BUSYBOX}, alias: db, command: [sleep, "1000"]}}]
  script: [echo begun, touch made-by-root, sleep 1000]
"""


def run(world: World, folder: Path, host: str, *options: str) -> Any:
    result = world.remuda("run", folder, "--output", "json", *options, DOCKER_HOST=host)
    result.jobs = {job["name"]: job for job in json.loads(result.out)["jobs"]} if result.out else {}
    return result


def engine_is_empty(engine: DockerEngine) -> bool:
    return engine.containers() == [] and engine.networks() == []


def test_a_job_with_an_image_runs_in_a_container_and_the_others_on_the_machine(
    world: World, pipeline: MakePipeline, engine: DockerEngine
) -> None:
    result = run(world, pipeline(BOTH), engine.host, "--logs")
    assert result.code == 0, result.out + result.err
    assert re.search(rf"containers: Docker \d+\.\d\S* at {re.escape(engine.host)} \(DOCKER_HOST\)", result.err)
    assert "made by 0" in result.jobs["on machine"]["log_tail"]
    inside = result.jobs["in image"]
    assert any(line.startswith("Using the container engine Docker") for line in inside["log_tail"])
    assert (inside["image"], inside["image_and_services_ignored"]) == (BUSYBOX, False)
    assert engine_is_empty(engine)
    assert world.is_empty()


def test_without_an_engine_such_a_job_fails_with_cause_and_cure_and_the_others_run(
    world: World, pipeline: MakePipeline
) -> None:
    folder = pipeline(
        f"in image: {{image: {BUSYBOX}, script: [exit 0]}}\n"
        "served: {services: [redis], script: [exit 0]}\n"
        "plain: {script: [exit 0]}"
    )
    result = run(world, folder, NO_ENGINE)
    assert result.code == 1
    assert {name: job["status"] for name, job in result.jobs.items()} == {
        "in image": "failed",
        "served": "failed",
        "plain": "success",
    }
    (line,) = result.jobs["in image"]["log_tail"]
    tried = f"{NO_ENGINE} (DOCKER_HOST): the socket does not exist"
    for text in ("no container engine answers", tried, "--no-containers"):
        assert text in line
        assert text in result.err
    # A pipe gets the long text once for each job: in its log.
    output = world.remuda("run", folder, DOCKER_HOST=NO_ENGINE)
    assert (output.out + output.err).count(tried) == 2


@pytest.mark.parametrize("option", [("--no-containers",), ("--containers", "never")])
def test_without_containers_each_such_job_is_marked(
    world: World, pipeline: MakePipeline, option: tuple[str, ...]
) -> None:
    folder = pipeline(
        f"a: {{image: {BUSYBOX}, services: [{{name: redis:7}}, postgres:16], script: [cat /etc/debian_version]}}\n"
        "b: {script: [exit 0]}"
    )
    result = run(world, folder, NO_ENGINE, *option, "--logs")
    assert result.code == 0, result.out + result.err
    marked, plain = result.jobs["a"], result.jobs["b"]
    assert marked["image_and_services_ignored"]
    assert marked["services"] == ["redis:7", "postgres:16"]
    assert not plain["image_and_services_ignored"]
    log = "\n".join(marked["log_tail"])
    assert f"WARNING: image: {BUSYBOX} is ignored" in log
    assert "WARNING: services: redis:7, postgres:16: not started" in log
    text = world.remuda("run", folder, *option, DOCKER_HOST=NO_ENGINE).out
    assert text.count(f"image {BUSYBOX} ignored, services redis:7, postgres:16 not started") >= 2


@pytest.mark.parametrize("command", ["run", "up"])
def test_options_for_and_against_containers_are_refused(world: World, command: str) -> None:
    result = world.remuda(command, "--containers", "always", "--no-containers")
    assert (result.code, result.out) == (2, "")
    assert "--no-containers means --containers never" in result.err


def test_no_containers_wins_over_settings_files(world: World, pipeline: MakePipeline) -> None:
    folder = pipeline(f"a: {{image: {BUSYBOX}, script: [test -e /etc/debian_version]}}")
    settings = world.folder / ".config/remuda/settings.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('containers = "always"\n')
    assert run(world, folder, NO_ENGINE, "--no-containers").code == 0


def test_all_jobs_run_in_containers_if_the_user_wants_that(
    world: World, pipeline: MakePipeline, engine: DockerEngine
) -> None:
    folder = pipeline(
        "a: {script: [test -e /etc/debian_version]}\n"
        f"b: {{image: {BUSYBOX}, script: [test ! -e /etc/debian_version]}}"
    )
    result = run(world, folder, engine.host, "--containers", "always", "--image", DEBIAN, "--logs")
    assert result.code == 0, result.out + result.err
    assert any(f"local image {DEBIAN}" in line for line in result.jobs["a"]["log_tail"])


def test_a_run_in_containers_only_is_refused_without_an_engine(world: World, pipeline: MakePipeline) -> None:
    result = world.remuda("run", pipeline(BOTH), "--containers", "always", DOCKER_HOST=NO_ENGINE)
    assert (result.code, result.out) == (2, "")
    assert "--containers always: no container engine answers" in result.err
    assert world.is_empty()


def test_a_service_answers_and_a_cache_is_kept(world: World, pipeline: MakePipeline, engine: DockerEngine) -> None:
    folder = pipeline(
        f"""
job:
  image: {BUSYBOX}
  services:
    - name: {BUSYBOX}
      alias: web
      entrypoint: [sh, -c]
      command: ['while :; do nc -l -p 80 -e echo hello; done']
      variables: {{HEALTHCHECK_TCP_PORT: "80"}}
  cache: {{key: k, paths: [kept]}}
  script: [nc web 80, 'if test -e kept/file; then echo cache was there; fi', mkdir -p kept, date > kept/file]
"""
    )
    first = run(world, folder, engine.host, "--logs", "--cache-dir", str(world.folder / "cache"))
    assert first.code == 0, first.out + first.err
    assert "hello" in first.jobs["job"]["log_tail"]
    second = run(world, folder, engine.host, "--logs", "--cache-dir", str(world.folder / "cache"))
    assert "cache was there" in second.jobs["job"]["log_tail"]
    assert engine_is_empty(engine)


def test_a_job_in_a_container_sees_no_file_of_the_platform(
    world: World, pipeline: MakePipeline, engine: DockerEngine
) -> None:
    folder = pipeline(
        f"""
job:
  image: {BUSYBOX}
  script:
    - find / -xdev -name client.json -o -xdev -name remuda.log -o -xdev -name cell.sqlite | grep . && exit 1
    - cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep REMUDA_ADMIN && exit 1
    - find {world.temporary} -maxdepth 2 -mindepth 2
    - test ! -S {engine.host.removeprefix("unix://")}
"""
    )
    for isolation in ("auto", "none"):
        result = run(world, folder, engine.host, "--logs", "--isolation", isolation)
        assert result.code == 0, result.out + result.err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_jobs_of_another_user_and_jobs_in_containers_share_artifacts(
    world: World, pipeline: MakePipeline, engine: DockerEngine
) -> None:
    world.folder.chmod(0o711)
    world.temporary.chmod(0o711)
    result = run(world, pipeline(BOTH), engine.host, "--isolation", "user", "--jobs", "1", "--logs")
    assert result.code == 0, result.out + result.err
    assert engine_is_empty(engine)
    assert world.is_empty()


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)])
def test_an_interrupt_removes_containers_and_networks(
    world: World, pipeline: MakePipeline, engine: DockerEngine, finish: Any, signals: tuple[signal.Signals, ...]
) -> None:
    process = world.start("run", pipeline(LONG), DOCKER_HOST=engine.host)
    wait_until(lambda: len(engine.containers(remuda_role="job")) == 1, seconds=60)
    for number in signals:
        process.send_signal(number)
    assert finish(process).code == 130
    assert engine_is_empty(engine)
    assert world.is_empty()


@pytest.mark.parametrize("isolation", ["auto", "none"])
def test_a_killed_run_leaves_no_container_behind(
    world: World, pipeline: MakePipeline, engine: DockerEngine, isolation: str
) -> None:
    process = world.start("run", pipeline(LONG), "--isolation", isolation, DOCKER_HOST=engine.host)
    wait_until(lambda: len(engine.containers(remuda_role="job")) == 1, seconds=60)
    process.kill()
    process.wait()
    wait_until(lambda: engine_is_empty(engine) and not world.processes(), seconds=60)


def test_two_runs_at_once_do_not_remove_each_others_containers(
    world: World, pipeline: MakePipeline, engine: DockerEngine
) -> None:
    process = world.start("run", pipeline(LONG), DOCKER_HOST=engine.host)
    wait_until(lambda: len(engine.containers(remuda_role="job")) == 1, seconds=60)
    other = world.remuda("run", pipeline(f"a: {{image: {BUSYBOX}, script: [exit 0]}}"), DOCKER_HOST=engine.host)
    assert other.code == 0, other.out
    assert len(engine.containers(remuda_role="job")) == 1
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130


@pytest.fixture(scope="module")
def podman() -> Iterator[PodmanEngine]:
    if missing := PodmanEngine.missing():
        pytest.skip(missing)
    with PodmanEngine() as engine:
        yield engine


def test_podman_is_found_by_the_socket_of_the_user(world: World, pipeline: MakePipeline, podman: PodmanEngine) -> None:
    if Path(DOCKER_SOCKET).exists():
        # A Docker engine of this machine would come first.
        hide = f'mount --bind /dev/null {DOCKER_SOCKET} && exec "$@"'
        world.program = ("unshare", "--mount", "sh", "-c", hide, "sh", *world.program)
    folder = pipeline(BOTH.replace(BUSYBOX, f"localhost/{BUSYBOX}"))
    options = ("run", folder, "--output", "json", "--logs")
    result = world.remuda(*options, DOCKER_HOST="", XDG_RUNTIME_DIR=str(podman.runtime_dir))
    assert result.code == 0, result.out + result.err
    assert re.search(rf"containers: Podman [\d.]+ at {podman.host} \(Podman of this user\)", result.err)
    assert '"made by 0"' in result.out
    assert podman.containers() == []
    assert world.is_empty()


def test_an_interrupt_removes_containers_of_podman(
    world: World, pipeline: MakePipeline, podman: PodmanEngine, finish: Any
) -> None:
    folder = pipeline(f"job: {{image: localhost/{BUSYBOX}, script: [sleep 1000]}}")
    process = world.start("run", folder, DOCKER_HOST=podman.host)
    wait_until(lambda: len(podman.containers()) == 1, seconds=60)
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 130
    assert podman.containers() == []
    assert world.is_empty()


@pytest.fixture
def start_platform(world: World) -> Iterator[Callable[..., Platform]]:
    platforms = []

    def start(host: str, *options: str) -> Platform:
        platforms.append(Platform(world, options=options, DOCKER_HOST=host))
        return platforms[-1]

    yield start
    for platform in platforms:
        if platform.process.poll() is None:
            platform.stop()


def test_up_runs_such_jobs_in_containers_as_soon_as_an_engine_answers(
    world: World, pipeline: MakePipeline, own_engine: DockerEngine, start_platform: Callable[..., Platform]
) -> None:
    own_engine.kill()
    platform = start_platform(own_engine.host)
    folder = pipeline(BOTH)
    platform.push(folder, "first")
    wait_until(lambda: "failed" in platform.job("show", "1").out, seconds=60)
    assert "no container engine answers" in platform.job("log", "1").out
    own_engine.start()
    platform.push(pipeline(BOTH), "second")
    wait_until(lambda: "success" in platform.job("show", "4").out, seconds=60)
    assert "made by 0" in platform.job("log", "4").out


def test_up_ignores_images_if_the_user_wants_that(
    pipeline: MakePipeline, start_platform: Callable[..., Platform]
) -> None:
    platform = start_platform(NO_ENGINE, "--no-containers")
    platform.push(pipeline(f"a: {{image: {BUSYBOX}, script: [exit 0]}}"), "app")
    wait_until(lambda: "success" in platform.job("show", "1").out, seconds=60)
    assert f"image: {BUSYBOX} is ignored" in platform.job("log", "1").out
