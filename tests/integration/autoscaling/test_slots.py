"""Several jobs in slots of one machine: limits, measured usage, isolation from each other, and cleanup after a job.

Machines of the plugin `local` have control groups, those of the lab have none. All processes that jobs start here are
limited in number and time, so that a limit that does not work cannot harm the machine of the test.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from tests.integration.autoscaling.conftest import docker_start_command
from tests.support.machines.local_groups import LocalGroups
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine

from remuda.testing.waiting import until

pytestmark = pytest.mark.long

SHARED = "/var/lib/meet"
"""Folder where jobs of different users wait for files of each other."""
USE_300_MIB = "python3 -c 'x = bytearray(300 * 2**20)'"
USE_ONE_CPU_SECOND = "python3 -c 'import time\nwhile time.process_time() < 1: pass'"
START_200_PROCESSES = f"""python3 -c 'import subprocess
try:
  for _ in range(200): subprocess.Popen(["sleep", "20"])
finally: open("{SHARED}/forker-over", "w")'"""
NO_GIT = "variables: {GIT_STRATEGY: none}\n"


def script(name: str, *lines: str, keys: str = "") -> str:
    """Return a job as YAML with a script of these lines. `keys`: further keys of the job, as YAML."""
    return f"{name}:\n  script:\n    - |\n" + "".join(f"      {line}\n" for line in lines) + keys


def wait_for(name: str) -> str:
    """Return a shell line that waits for a file of another job."""
    return f"until [ -e {SHARED}/{name} ]; do sleep 0.1; done"


def configure(
    site: Any, local_groups: LocalGroups, remuda_keys: str, *, capacity: int = 3, machines: int = 1, runner: str = ""
) -> None:
    site.configure(
        runner=f"{runner}\n[runners.remuda]\nfirst_uid = 21000\n{remuda_keys}\n",
        autoscaler=(
            f"max_instances = {machines}\ncapacity_per_instance = {capacity}\n"
            f'instance_ready_command = "mkdir -p {SHARED} && chmod 777 {SHARED}"\n'
            f'[runners.autoscaler.plugin_config]\nname = "{local_groups.name}"\nfolder = "{local_groups.folder}"\n'
        ),
        policy='idle_time = "60s"',
    )


def slot_groups(local_groups: LocalGroups) -> list[Path]:
    """Return the paths of the control groups of slots, as this host sees them."""
    return [
        *Path("/sys/fs/cgroup").glob(f"*/remuda-local/{local_groups.name}-*/gitlab-runner/slot-*"),
        *Path("/sys/fs/cgroup").glob(f"remuda-local/{local_groups.name}-*/gitlab-runner/slot-*"),
    ]


def pids_of(line: str) -> list[str]:
    """Return the pids of all processes with this command line on this host and its machines."""
    pids = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command_line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if command_line == line:
                pids.append(process.name)
    return pids


async def test_limits_stop_only_the_job_that_exceeds_them(local_site: Any, local_groups: LocalGroups) -> None:
    configure(local_site, local_groups, 'slot_memory = "96m"\nslot_pids = 40\nslot_cpus = 1.5')
    after_script = f"  after_script: [touch {SHARED}/$CI_JOB_NAME-over]\n"
    limits = [
        "g=/sys/fs/cgroup/memory/$GITLAB_RUNNER_SLOT_CGROUP; [ ! -e $g ] || cat $g/memory.limit_in_bytes",
        "g=/sys/fs/cgroup/pids/$GITLAB_RUNNER_SLOT_CGROUP; [ ! -e $g ] || cat $g/pids.max",
        "g=/sys/fs/cgroup/cpu/$GITLAB_RUNNER_SLOT_CGROUP; [ ! -e $g ] || cat $g/cpu.cfs_quota_us",
    ]
    pipeline = (
        NO_GIT
        + script("eater", wait_for("neighbour"), USE_300_MIB, "echo has eaten", keys=after_script)
        + script("forker", wait_for("neighbour"), *START_200_PROCESSES.splitlines(), "echo has forked")
        + script(
            "neighbour",
            f"touch {SHARED}/neighbour",
            *limits,
            wait_for("eater-over"),
            wait_for("forker-over"),
            "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2 & done; wait",
            *USE_ONE_CPU_SECOND.splitlines(),
            "echo went on",
        )
    )
    async with local_site.manager():
        jobs = await local_site.jobs(await local_site.push(pipeline))
        eater, forker, neighbour = jobs["eater"], jobs["forker"], jobs["neighbour"]
        assert (eater["status"], eater["failure_reason"]) == ("failed", "script_failure"), eater["log"]
        assert "the job used more memory than its limit of 96 MiB, and was killed" in eater["log"]
        assert "O has eaten" not in eater["log"]
        assert forker["status"] == "failed", forker["log"]
        assert "BlockingIOError" in forker["log"]
        assert "the job could not start more than 40 processes, which is its limit" in forker["log"]
        assert neighbour["status"] == "success", neighbour["log"]
        assert "O went on" in neighbour["log"]
        usages = {name: await local_site.resource_usage(job["id"]) for name, job in jobs.items()}
        assert {usage["source"] for usage in usages.values()} == {"cgroup"}
        if Path("/sys/fs/cgroup/memory").exists():
            assert all(f"O {value}" in neighbour["log"] for value in (96 << 20, 40, 150000)), neighbour["log"]
        cpu_seconds = {name: usage["cpu_user_seconds"] + usage["cpu_system_seconds"] for name, usage in usages.items()}
        assert cpu_seconds["neighbour"] >= 1 > cpu_seconds["forker"]
        assert 60 << 20 < usages["eater"]["memory_peak_bytes"] <= 96 << 20
        assert usages["neighbour"]["memory_peak_bytes"] < usages["eater"]["memory_peak_bytes"]
        await until(lambda: not slot_groups(local_groups) and not pids_of("sleep 20"), seconds=20)


async def test_a_job_sees_nothing_of_other_jobs_on_its_machine(local_site: Any, local_groups: LocalGroups) -> None:
    configure(local_site, local_groups, "", capacity=2, runner="use_slot_cgroups = true")
    first_script = (
        f"echo mine >open; id -u >{SHARED}/uid; pwd >{SHARED}/folder",
        "umask 077; echo mine >secret; echo mine >/tmp/of-one; mkdir /dev/shm/of-one; echo mine >/var/tmp/of-one",
        f"touch {SHARED}/one",
        wait_for("two"),
    )
    refused = "echo refused; else echo got it; exit 1; fi"
    second_script = (
        wait_for("one"),
        f"folder=$(cat {SHARED}/folder); uid=$(cat {SHARED}/uid); base=${{folder%%/builds/*}}",
        'for f in "$folder/secret" "$folder/open" "$base/cache/$uid/." /tmp/of-one /var/tmp/of-one; do',
        f'if ! cat "$f"; then {refused}; done',
        'for f in "$folder/new" "$base/cache/$uid/new" /tmp/of-one; do',
        f'if ! touch "$f"; then {refused}; done',
        f'if ! ls "$base/cache/$uid"; then {refused}',
        f"if ! rm /tmp/of-one; then {refused}",
        'for p in /proc/[0-9]*; do if [ "$(stat -c %u $p)" = $uid ]; then',
        f"if ! cat $p/environ; then {refused}",
        f"if ! kill -9 ${{p#/proc/}}; then {refused}",
        "echo looked at a process; fi; done",
        f"touch {SHARED}/two",
    )
    later_script = (
        "touch /tmp/of-$CI_JOB_NAME",
        "for f in /tmp/of-one /var/tmp/of-one /dev/shm/of-one; do if [ -e $f ]; then exit 1; fi; done",
        f"touch {SHARED}/$CI_JOB_NAME; until [ -e {SHARED}/three -a -e {SHARED}/four ]; do sleep 0.1; done; id -u",
    )
    pipeline = NO_GIT + "stages: [first, then]\n"
    for name, lines in (("one", first_script), ("two", second_script)):
        pipeline += script(name, *lines, keys="  stage: first\n  timeout: 30s\n  variables: {WHOSE: mine-alone}\n")
    for name in ("three", "four"):
        pipeline += script(name, *later_script, keys="  stage: then\n")
    async with local_site.manager():
        jobs = await local_site.jobs(await local_site.push(pipeline))
        logs = "\n".join(job["log"] for job in jobs.values())
        assert {job["status"] for job in jobs.values()} == {"success"}, logs
        assert "O looked at a process" in jobs["two"]["log"]
        assert "O got it" not in jobs["two"]["log"]
        # Both slots were used again, each by its own user.
        assert all(f"O {uid}" in jobs["three"]["log"] + jobs["four"]["log"] for uid in (21000, 21001)), logs


async def test_a_timed_out_jobs_processes_end_before_the_next_job(local_site: Any, local_groups: LocalGroups) -> None:
    """Also processes that left the session, cleared their environment and ignore signals are killed."""
    configure(local_site, local_groups, "", capacity=1, runner="use_slot_cgroups = true\nlimit = 1")
    daemon = "setsid env -i sh -c 'trap \"\" TERM HUP; (sleep 617 &) ; sleep 618' >/dev/null 2>&1 </dev/null &"
    late = script("late", daemon, "sleep 619", keys="  timeout: 10s\n  stage: first\n  allow_failure: true\n")
    look = "for p in /proc/[0-9]*; do if grep -qa '^sleep.6' $p/cmdline; then echo there is $p; exit 1; fi; done"
    after = script("after", look, "id -u; ls -d /sys/fs/cgroup/*/gitlab-runner/slot-* || true", keys="  stage: then\n")
    async with local_site.manager():
        jobs = await local_site.jobs(await local_site.push(f"{NO_GIT}stages: [first, then]\n{late}{after}"))
        assert jobs["late"]["failure_reason"] == "job_execution_timeout", jobs["late"]["log"]
        assert jobs["after"]["status"] == "success", jobs["after"]["log"]
        assert "O 21000" in jobs["after"]["log"]
        assert not [line for number in (617, 618, 619) for line in pids_of(f"sleep {number}")]
        await until(lambda: not slot_groups(local_groups), seconds=20)


async def test_a_machine_without_control_groups_refuses_jobs_with_limits(bare_site: Any) -> None:
    """Without limits the job runs, with a warning; leftover processes are found by their user."""
    remuda_keys = "[runners.remuda]\nfirst_uid = 21000\n"
    autoscaler = "max_instances = 1\ncapacity_per_instance = 2"
    bare_site.configure(
        runner=f"use_slot_cgroups = true\n{remuda_keys}", autoscaler=autoscaler, policy='idle_time = "60s"'
    )
    leave_process = "setsid env -i sleep 627 >/dev/null 2>&1 </dev/null & sleep 0.5"
    async with bare_site.manager():
        jobs = await bare_site.jobs(await bare_site.push(NO_GIT + script("free", leave_process, "echo ran")))
        assert jobs["free"]["status"] == "success", jobs["free"]["log"]
        assert "O ran" in jobs["free"]["log"]
        warning = "WARNING: the job's processes are not in the control group /gitlab-runner/slot-0: "
        assert warning in jobs["free"]["log"]
        assert not pids_of("sleep 627")
    bare_site.configure(runner=f'{remuda_keys}slot_memory = "64m"\n', autoscaler=autoscaler, policy='idle_time = "60s"')
    async with bare_site.manager():
        jobs = await bare_site.jobs(await bare_site.push(NO_GIT + script("held", "echo ran")))
        assert (jobs["held"]["status"], jobs["held"]["failure_reason"]) == ("failed", "runner_system_failure")
        assert "this runner limits jobs by slot_memory, which this machine cannot enforce: " in jobs["held"]["log"]
        assert "O ran" not in jobs["held"]["log"]


async def test_slots_are_numbered_per_machine(local_site: Any, local_groups: LocalGroups) -> None:
    """Every machine has a slot 0, so an operator can prepare the same control groups on all machines."""
    configure(local_site, local_groups, "", capacity=1, machines=2, runner="use_slot_cgroups = true")
    lines = (
        "echo the group is $GITLAB_RUNNER_SLOT_CGROUP",
        "grep -c gitlab-runner/slot-0/ /proc/self/cgroup",
        "sleep 4",
    )
    async with local_site.manager():
        jobs = await local_site.jobs(await local_site.push(NO_GIT + script("one", *lines) + script("two", *lines)))
        assert {job["status"] for job in jobs.values()} == {"success"}, jobs
        assert all("O the group is gitlab-runner/slot-0" in job["log"] for job in jobs.values()), jobs
        assert len(list(local_groups.folder.glob("machines/*"))) == 2


@pytest.fixture
def group_name() -> Iterator[str]:
    """Name of a control group, removed at the end: lab machines with Docker use the control groups of this host."""
    name = f"remuda-tests/{token_hex(4)}"
    yield name
    for top in Path("/sys/fs/cgroup").glob(f"**/{name}"):
        for folder in (*sorted(top.rglob("*/"), reverse=True), top):
            with suppress(OSError):
                folder.rmdir()


async def test_containers_of_two_slots_are_isolated_and_removed(site: Any, tmp_path: Path, group_name: str) -> None:
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    (tmp_path / "meet").mkdir()
    start_docker = docker_start_command(tmp_path)
    site.configure(
        executor="docker-autoscaler",
        runner=(
            f'slot_cgroup_template = "{group_name}/slot-${{slot}}"\n[runners.remuda]\nslot_memory = "96m"\n'
            f'[runners.docker]\npull_policy = "never"\nimage = "{BUSYBOX}"\nvolumes = ["{tmp_path}/meet:{SHARED}"]\n'
        ),
        autoscaler=f"max_instances = 1\ncapacity_per_instance = 2\ninstance_ready_command = '''{start_docker}'''",
        policy='idle_time = "60s"',
    )
    eater = (
        wait_for("neighbour"),
        f"echo mine >secret; sleep 637 & pwd >{SHARED}/folder; touch {SHARED}/eater",
        wait_for("looked"),
        "dd if=/dev/zero of=/dev/null bs=300M count=1",
        "echo has eaten",
    )
    neighbour = (
        f"touch {SHARED}/neighbour; cat /proc/self/cgroup",
        wait_for("eater"),
        "if ps | grep 'sleep 63[7]'; then exit 1; fi",
        f"if cat $(cat {SHARED}/folder)/secret; then exit 1; fi",
        f"touch {SHARED}/looked",
        wait_for("eater-over"),
        "echo went on",
    )
    after_script = f"  after_script: [touch {SHARED}/eater-over]\n  timeout: 40s\n"
    neighbour_job = script("neighbour", *neighbour, keys="  timeout: 40s\n")
    async with site.manager():
        jobs = await site.jobs(await site.push(NO_GIT + script("eater", *eater, keys=after_script) + neighbour_job))
        log = jobs["eater"]["log"]
        assert jobs["eater"]["failure_reason"] == "script_failure", log
        assert "The kernel killed processes of this container: they used more memory than its limit" in log
        assert "O has eaten" not in log
        assert jobs["neighbour"]["status"] == "success", jobs["neighbour"]["log"]
        assert f"/{group_name}/slot-" in jobs["neighbour"]["log"]
        used = await site.resource_usage(jobs["eater"]["id"])
        assert (used["source"], used["memory_peak_bytes"] > 60 << 20) == ("cgroup", True)
        [machine] = site.group.instances.values()
        assert machine.run("docker ps -aq").stdout == ""
        assert not pids_of("sleep 637")
        await until(lambda: not list(Path("/sys/fs/cgroup/memory").glob(f"{group_name}/slot-*")), seconds=20)
