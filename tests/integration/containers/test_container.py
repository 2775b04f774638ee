"""The steps container_open, container_exec and container_close with a real engine, here and on a machine over SSH."""

import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.machines.ssh_machine import SshMachine
from tests.support.servers.docker_engine import BUSYBOX, DEBIAN, DockerEngine, archive, busybox_files, names
from tests.support.step_files import write_step

from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until, wait_until
from remuda.wire.agent_client import JobStart


@pytest.mark.parametrize("image", [BUSYBOX, DEBIAN])
def test_a_command_runs_inside_with_the_folders_at_their_own_paths(engine: DockerEngine, job: Any, image: str) -> None:
    (job.work / "file").write_text("from outside\n")
    opened = job.open(image)
    assert opened.code == 0, opened.text
    script = 'cat file; pwd; echo "$GREETING" >out; echo error >&2; printf exchange >"$1"/output; exit 7'
    result = job.run(opened, "sh", "-c", script, "sh", str(job.exchange), GREETING="hello there")
    assert (result.code, result.text) == (7, f"from outside\n{job.work}\nerror\n")
    assert ((job.work / "out").read_text(), (job.exchange / "output").read_text()) == ("hello there\n", "exchange")
    assert opened.outputs["image"] == image
    assert opened.outputs["image_id"].startswith("sha256:")
    assert not opened.outputs["pulled"]
    [container] = engine.containers()
    assert container["Id"] == opened.outputs["container"]
    assert container["Labels"]["remuda.job"] == "1"
    closed = job.close(image)
    assert closed.code == 0, closed.text
    assert engine.containers() == []


def test_folders_may_have_colons_in_their_names(engine: DockerEngine, new_job: Callable[..., Any]) -> None:
    job = new_job(engine, "a:b")
    assert job.run(job.open(), "sh", "-c", "pwd > here").code == 0
    assert (job.work / "here").read_text() == f"{job.work}\n"
    assert job.close().code == 0


def test_closing_is_idempotent_and_needs_no_opening(job: Any) -> None:
    assert job.close().code == 0
    assert job.step("container_close", image=["wrong"], auth_config="{wrong").code == 0
    assert job.open().code == 0
    assert [job.close().code for _ in range(2)] == [0, 0]


def test_opening_again_replaces_what_a_killed_opening_left(engine: DockerEngine, job: Any) -> None:
    first = job.open()
    second = job.open()
    assert first.outputs["container"] != second.outputs["container"]
    assert [container["Id"] for container in engine.containers()] == [second.outputs["container"]]


def test_two_environments_of_a_job_are_independent(engine: DockerEngine, job: Any) -> None:
    first = job.open()
    job.environment = "1/other/1"
    job.open()
    assert len(engine.containers()) == 2
    assert job.close().code == 0
    assert [container["Id"] for container in engine.containers()] == [first.outputs["container"]]


def test_output_streams_and_is_exact(job: Any) -> None:
    opened = job.open()
    os.mkfifo(job.work / "gate")
    with job.begin(opened, "sh", "-c", "echo first; read line <gate; echo $line") as process:
        assert process.stdout.readline() == "first\n"
        (job.work / "gate").write_text("second\n")
        assert process.stdout.read() == "second\n"
    data = job.run(opened, "sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x")
    assert data.text == "x" * 300000


def test_background_process_does_not_keep_the_command(job: Any) -> None:
    opened = job.open()
    result = job.run(opened, "sh", "-c", "sleep 600 & echo $! >pid; echo done")
    assert (result.code, result.text) == (0, "done\n")
    assert job.run(opened, "sh", "-c", 'kill -0 "$(cat pid)" && echo alive').text == "alive\n"


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("KILL", 137), ("USR1", 138)])
def test_a_command_that_a_signal_ends_has_128_plus_its_number(job: Any, name: str, code: int) -> None:
    assert job.run(job.open(), "sh", "-c", f"echo before; kill -{name} $$; echo after").code == code


def test_missing_command_exits_with_127(job: Any) -> None:
    opened = job.open()
    result = job.run(opened, "nonsense")
    assert result.code == 127
    assert "nonsense: not found" in result.text


@pytest.mark.long
@pytest.mark.parametrize(("image", "trap", "code"), [(BUSYBOX, "echo trapped; exit 3", 3), (DEBIAN, "", 137)])
def test_sigterm_ends_command_family(job: Any, image: str, trap: str, code: int, terminate: Callable[..., str]) -> None:
    opened = job.open(image)
    script = f"trap '{trap}' TERM; (trap '' TERM; while :; do sleep 1; done) & sleep 500 & touch up; wait; sleep 501"
    process = job.begin(opened, "sh", "-c", script)
    wait_until((job.work / "up").exists)
    assert terminate(process) == ("trapped\n" if trap else "")
    assert process.returncode == code
    listing = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null"
    processes = job.run(opened, "sh", "-c", listing).text.splitlines()
    assert not [line for line in processes if "sleep 50" in line or "sleep 1 " in line]


def test_exit_code_75_is_the_commands_own(job: Any) -> None:
    """A job cannot report a failure of the platform by this exit code."""
    assert job.run(job.open(), "sh", "-c", "exit 75").code == 75
    assert job.failure is None


def test_a_container_that_was_ended_by_its_job_is_the_jobs_fault(engine: DockerEngine, job: Any) -> None:
    opened = job.open()
    result = job.run(opened, "sh", "-c", "kill -TERM 1; sleep 60")
    assert result.code != 0
    assert "the container ended while the command was running" in result.text
    second = job.run(opened, "true")
    assert second.code == 1
    assert "does not exist any more" in second.text
    assert job.failure is None
    assert engine.containers() == []


def test_entrypoint_of_the_image_is_honoured(engine: DockerEngine, job: Any) -> None:
    entry = '#!/bin/sh\necho preparing\nsleep 0.5\ntouch /tmp/prepared\nexec "$@"\n'
    engine.add_image("entry:1", busybox_files(entry=entry), 'ENTRYPOINT ["/entry"]')
    opened = job.open("entry:1")
    assert "preparing" in opened.text
    assert job.run(opened, "ls", "/tmp/prepared").code == 0
    job.close("entry:1")
    assert job.run(job.open("entry:1", entrypoint=[""]), "ls", "/tmp/prepared").code == 1


@pytest.mark.parametrize("entrypoint", ['["/bin/sh", "-c"]', '["/bin/sh", "-c", "exec sleep 1000"]'])
def test_entrypoint_that_drops_arguments_still_starts(engine: DockerEngine, job: Any, entrypoint: str) -> None:
    engine.add_image("drops:1", busybox_files(), f"ENTRYPOINT {entrypoint}")
    opened = job.open("drops:1", entrypoint_patience_seconds=2)
    assert job.run(opened, "echo", "here").text == "here\n"
    assert ("while the entrypoint still runs" in opened.text) == ("sleep" in entrypoint)


def test_entrypoint_that_exits_with_0_is_skipped(engine: DockerEngine, job: Any) -> None:
    engine.add_image("hello:1", busybox_files(), 'ENTRYPOINT ["echo", "hello"]')
    opened = job.open("hello:1")
    assert "hello sh -c" in opened.text
    assert "trying again without the entrypoint" in opened.text
    assert job.run(opened, "echo", "here").text == "here\n"


def test_container_exit_before_ready_is_reported(engine: DockerEngine, job: Any) -> None:
    engine.add_image("broken:1", busybox_files(), 'ENTRYPOINT ["sh", "-c", "echo no database >&2; exit 3"]')
    opened = job.open("broken:1")
    assert opened.code == 1
    assert "no database" in opened.text
    assert "ended before it was ready (exit code 3)" in opened.text
    assert 'entrypoint: [""]' in opened.text
    assert engine.containers() == []


def test_an_image_without_shell_is_named(engine: DockerEngine, job: Any) -> None:
    engine.add_image("empty:1", archive({"file": "x"}))
    opened = job.open("empty:1")
    assert opened.code == 1
    assert "the image empty:1 has no shell" in opened.text
    assert engine.containers() == []


def test_an_image_that_runs_and_has_no_shell_is_named(engine: DockerEngine, job: Any) -> None:
    entry = '["/busybox", "ash", "-c", "while :; do /busybox sleep 1; done"]'
    engine.add_image("server:1", archive({"busybox": Path("/bin/busybox").read_bytes()}), f"ENTRYPOINT {entry}")
    opened = job.open("server:1", entrypoint_patience_seconds=1)
    assert opened.code == 1
    assert "has no shell" in opened.text
    assert engine.containers() == []


def test_the_images_own_user_can_use_the_tree(engine: DockerEngine, job: Any) -> None:
    engine.add_image("user:1", busybox_files(), "USER app")
    tree = job.work / "src" / "deep"
    tree.mkdir(parents=True, mode=0o755)
    (tree / "file").write_text("old")
    (job.work / "run.sh").write_text("#!/bin/sh\nid -u\n")
    (job.work / "run.sh").chmod(0o700)
    (job.work / "secret").symlink_to("/etc/shadow")
    shadow = os.stat("/etc/shadow").st_mode
    opened = job.open("user:1")
    (job.exchange / "output").touch(mode=0o600)
    result = job.run(
        opened,
        "sh",
        "-c",
        './run.sh && echo new >src/deep/file && echo x >src/more && echo y >"$1"',
        "sh",
        f"{job.exchange}/output",
    )
    assert (result.code, result.text) == (0, "1000\n")
    assert (tree / "file").read_text() == "new\n"
    assert (job.exchange / "output").read_text() == "y\n"
    assert os.stat("/etc/shadow").st_mode == shadow
    assert stat.S_IMODE((tree / "file").stat().st_mode) == 0o666


def test_user_volumes_and_options(engine: DockerEngine, job: Any, tmp_path: Any) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "x").write_text("shared")
    opened = job.open(
        user="1000:1000",
        volumes=[f"{tmp_path}/given:/given:ro", "/scratch"],
        hostname="builder",
        variables={"LANG": "C.UTF-8"},
        labels={"team": "a"},
        options={
            "memory": "64m",
            "cpus": "0.5",
            "pids_limit": 50,
            "cap_drop": ["NET_RAW"],
            "extra_hosts": ["db:10.1.2.3"],
        },
    )
    script = "id -u; cat /given/x; echo; hostname; echo $LANG; touch /given/y || echo read only; grep db /etc/hosts"
    result = job.run(opened, "sh", "-c", script)
    assert result.text.split("\n")[:4] == ["1000", "shared", "builder", "C.UTF-8"]
    assert "read only" in result.text
    assert "10.1.2.3" in result.text
    host = engine.api.call("GET", f"/containers/{opened.outputs['container']}/json")["HostConfig"]
    assert (host["Memory"], host["NanoCpus"], host["PidsLimit"]) == (64 * 2**20, 500_000_000, 50)


def test_a_command_over_the_memory_limit_is_explained(job: Any) -> None:
    opened = job.open(options={"memory": "32m", "memory_swap": "32m"})
    result = job.run(opened, "sh", "-c", "dd if=/dev/zero of=/dev/null bs=200M count=1")
    assert result.code == 137
    assert "more memory than its limit of 32.0 MiB" in result.text


def test_limits_of_a_policy_hold(engine: DockerEngine, job: Any) -> None:
    job.env["REMUDA_LIMITS"] = '{"memory_bytes": 33554432, "cpus": 0.25, "pids": 20, "network": [[]]}'
    opened = job.open(options={"memory": "1g"})
    host = engine.api.call("GET", f"/containers/{opened.outputs['container']}/json")["HostConfig"]
    assert (host["Memory"], host["NanoCpus"], host["PidsLimit"]) == (33554432, 250_000_000, 20)
    assert job.run(opened, "sh", "-c", "ls /sys/class/net").text == "lo\n"


def test_leftovers_of_ended_jobs_are_swept(engine: DockerEngine, job: Any, new_job: Callable[..., Any]) -> None:
    ended = new_job(engine, "2")
    ended.open(BUSYBOX, network="job")
    running = new_job(engine, "3")
    still_open = running.open()
    ended.exchange.rmdir()  # as when its job has ended
    opened = job.open()
    assert "left behind" in opened.text
    assert sorted(container["Id"] for container in engine.containers()) == sorted(
        [still_open.outputs["container"], opened.outputs["container"]]
    )
    assert engine.networks() == []


def test_checkout_removes_container_in_its_folder(engine: DockerEngine, job: Any, new_job: Callable[..., Any]) -> None:
    """This container could not be closed. The files of its job still exist, so it does not count as a leftover."""
    assert job.open().code == 0
    neighbour = new_job(engine, "2")
    still_open = neighbour.open()
    result = job.step("checkout", strategy="empty")
    assert result.code == 0, result.text
    assert "which job 1 left behind" in result.text
    assert [container["Id"] for container in engine.containers()] == [still_open.outputs["container"]]


def test_a_checkout_does_not_begin_where_the_engine_is_away(job: Any) -> None:
    job.host = "unix:///nowhere"
    (job.work / "file").touch()
    assert job.step("checkout", strategy="empty").code == 75
    assert (job.work / "file").exists()


def test_a_request_that_the_container_replaced_by_a_link_is_not_read(job: Any, tmp_path: Path) -> None:
    """The link could lead to the request of another job, with its secrets."""
    opened = job.open()
    foreign_request = {"command": ["sh", "-c", "echo $SECRET"], "work_dir": str(job.work), "env": {"SECRET": "hunter2"}}
    (tmp_path / "foreign").write_text(json.dumps(foreign_request))
    link = job.exchange / "1.command"
    link.symlink_to(tmp_path / "foreign")
    command = [sys.executable, "-m", "remuda.stdsteps", *opened.outputs["environment"]["exec"][1:], str(link)]
    process = subprocess.run(command, cwd=job.work, capture_output=True, text=True, timeout=60)
    assert process.returncode != 0
    assert "hunter2" not in process.stdout


def test_container_ends_when_its_lease_expires(engine: DockerEngine, job: Any) -> None:
    job.open(lease_seconds=1)
    wait_until(lambda: engine.containers() == [])


def test_files_go_to_the_owner_of_the_working_directory(job: Any) -> None:
    """The agent is root, and the job's steps on the machine run as another user."""
    os.chown(job.work, 65534, 65534)
    assert job.run(job.open(), "sh", "-c", "mkdir -p made/deep; touch made/deep/file; ln -s /etc/passwd link").code == 0
    assert job.close().code == 0
    created = [job.work / name for name in ("made", "made/deep/file", "link")]
    assert [path.lstat().st_uid for path in created] == [65534] * 3
    assert os.stat("/etc/passwd").st_uid == 0


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_user_that_is_not_root_gets_files_back(
    engine: DockerEngine, new_job: Callable[..., Any], public_folder: Path, is_paused: bool
) -> None:
    """The agent runs as an unprivileged user in the engine's group."""
    job = new_job(engine, str(public_folder / "job"))
    script = "mkdir -p made/deep; touch made/deep/file"
    opened = job.open()
    assert job.run(opened, "sh", "-c", script).code == 0
    for folder in (job.work, job.exchange, job.exchange.parent / "private"):
        subprocess.run(["chown", "-R", "65534:65534", folder], check=True)
    created = job.work / "made" / "deep"
    os.chown(created, 0, 0)
    if is_paused:
        assert job.step("container_pause").code == 0
    socket = engine.host.removeprefix("unix://")
    before = os.stat(socket)
    os.chown(socket, 0, 65534)
    Path(socket).parent.chmod(0o711)
    try:
        closed = job.step_as(65534, "container_close", image=BUSYBOX)
    finally:
        os.chown(socket, before.st_uid, before.st_gid)
    assert closed.code == 0, closed.text
    assert created.stat().st_uid == 65534
    assert names(engine.containers()) == []


@pytest.fixture
def machine(engine: DockerEngine) -> Iterator[SshMachine]:
    """An SSH server in the engine's network."""
    if missing := SshMachine.missing():
        pytest.skip(missing)
    with SshMachine(engine.network_prefix) as machine:
        yield machine


@pytest.fixture
async def local_agent(tmp_path: Path) -> AsyncIterator[AgentProcess]:
    """The local agent. A second agent runs on the machine; only its proxy leads to it."""
    async with AgentProcess(tmp_path / "remote") as remote, AgentProcess(tmp_path / "local") as local:
        await remote.start()
        await local.start()
        yield local


def a_job(machine: SshMachine, engine: DockerEngine, folder: Path, *inner: dict[str, Any]) -> JobStart:
    """A job with a step that opens the machine; in it a step that opens a container; in it the `inner` steps."""
    work = folder / "work"
    package = work / "machine"
    proxy_command = machine.command(
        *map(shlex.quote, (sys.executable, "-m", "remuda.steps", "proxy", "--data", f"{folder}/remote"))
    )
    environment_line = json.dumps({"name": "environment", "value": {"agent": proxy_command}})
    command = ["sh", "-c", 'cat "$1" >>"$2"', "sh", "${{ func_dir }}/environment", "${{ output_file }}"]
    definition = {"environment": {"open": {"command": command}, "close": {"command": ["true"]}}}
    write_step(package, definition)
    (package / "environment").write_text(f"{environment_line}\n")
    inputs = {"image": BUSYBOX, "pull_policy": ["never"], "engine": engine.host}
    box = {"name": "box", "step": "builtin://container", "inputs": inputs, "run": list(inner)}
    steps = steps_text({"name": "machine", "step": "./machine", "run": [box]}, {"name": "after", "script": "cat made"})
    return JobStart(id="1", work_dir=str(work), steps=steps)


async def test_a_container_on_a_machine_reached_over_ssh(
    machine: SshMachine, engine: DockerEngine, local_agent: AgentProcess, tmp_path: Path
) -> None:
    inner = {"name": "hello", "script": 'test ! -e /etc/debian_version; echo "made in a container" | tee made'}
    seen = await run_job(local_agent, a_job(machine, engine, tmp_path, inner))
    assert seen.end is not None
    assert seen.end.status == "success", seen.log.decode()
    statuses = {event["path"]: event["status"] for event in seen.results if event["event"] == "finished"}
    assert statuses["/machine/box/hello"] == statuses["/machine/box"] == statuses["/machine"] == "success"
    assert seen.lines.count(b"made in a container") == 2
    assert engine.containers() == []


async def test_a_failure_two_levels_down_is_the_jobs_and_leaves_nothing(
    machine: SshMachine, engine: DockerEngine, local_agent: AgentProcess, tmp_path: Path
) -> None:
    seen = await run_job(local_agent, a_job(machine, engine, tmp_path, {"name": "fails", "script": "exit 7"}))
    assert seen.end is not None
    assert (seen.end.status, seen.end.exit_code) == ("failure", 7), seen.log.decode()
    assert engine.containers() == []


async def test_cancelling_reaches_two_levels_down(
    machine: SshMachine, engine: DockerEngine, local_agent: AgentProcess, tmp_path: Path
) -> None:
    job = a_job(machine, engine, tmp_path, {"name": "long", "script": "touch up; sleep 1000"})
    async with local_agent.client() as client:
        await client.start(job)
        await until((tmp_path / "work/up").exists)
        await client.cancel("1")
        seen = await follow(client, "1")
    assert seen.check().status == "cancelled"
    assert engine.containers() == []
