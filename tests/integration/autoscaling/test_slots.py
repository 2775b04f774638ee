"""Several jobs on one machine: what each may use, what is counted for it, what it sees of the others, what it leaves.

Machines of the plugin `local` have control groups, those of the lab have none. Whatever is started here is bounded in
number and time, also where the limit that is tested would not hold.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from tests.support.machines.local_yard import Yard
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine, busybox_files

from remuda.testing.waiting import until

pytestmark = pytest.mark.long

MEET = "/var/lib/meet"
"""Where jobs of different users wait for each other."""
EAT = "python3 -c 'x = bytearray(300 * 2**20)'"
BURN = "python3 -c 'import time\nwhile time.process_time() < 1: pass'"
FORK = f"""python3 -c 'import subprocess
try:
  for _ in range(200): subprocess.Popen(["sleep", "20"])
finally: open("{MEET}/forker-over", "w")'"""
PLAIN = "variables: {GIT_STRATEGY: none}\n"


def script(name: str, *lines: str, more: str = "") -> str:
    """A job of a pipeline."""
    return f"{name}:\n  script:\n    - |\n" + "".join(f"      {line}\n" for line in lines) + more


def meet(name: str) -> str:
    """Wait for a file of another job."""
    return f"until [ -e {MEET}/{name} ]; do sleep 0.1; done"


def configure(site: Any, yard: Yard, own: str, *, capacity: int = 3, machines: int = 1, runner: str = "") -> None:
    site.configure(
        runner=f"{runner}\n[runners.remuda]\nfirst_uid = 21000\n{own}\n",
        autoscaler=(
            f"max_instances = {machines}\ncapacity_per_instance = {capacity}\n"
            f'instance_ready_command = "mkdir -p {MEET} && chmod 777 {MEET}"\n'
            f'[runners.autoscaler.plugin_config]\nname = "{yard.name}"\nfolder = "{yard.folder}"\n'
        ),
        policy='idle_time = "60s"',
    )


def slot_groups(yard: Yard) -> list[Path]:
    """Control groups of slots on the machines, seen from here."""
    return [
        *Path("/sys/fs/cgroup").glob(f"*/remuda-local/{yard.name}-*/gitlab-runner/slot-*"),
        *Path("/sys/fs/cgroup").glob(f"remuda-local/{yard.name}-*/gitlab-runner/slot-*"),
    ]


def living(line: str) -> list[str]:
    """Processes of this machine and all on it with these words."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if words == line:
                found.append(process.name)
    return found


async def test_limits_hold_for_the_job_that_breaks_them_alone(farm: Any, yard: Yard) -> None:
    configure(farm, yard, 'slot_memory = "96m"\nslot_pids = 40\nslot_cpus = 1.5')
    over = f"  after_script: [touch {MEET}/$CI_JOB_NAME-over]\n"
    limits = [
        "g=/sys/fs/cgroup/memory/$GITLAB_RUNNER_SLOT_CGROUP; [ ! -e $g ] || cat $g/memory.limit_in_bytes",
        "g=/sys/fs/cgroup/pids/$GITLAB_RUNNER_SLOT_CGROUP; [ ! -e $g ] || cat $g/pids.max",
        "g=/sys/fs/cgroup/cpu/$GITLAB_RUNNER_SLOT_CGROUP; [ ! -e $g ] || cat $g/cpu.cfs_quota_us",
    ]
    pipeline = (
        PLAIN
        + script("eater", meet("neighbour"), EAT, "echo has eaten", more=over)
        + script("forker", meet("neighbour"), *FORK.splitlines(), "echo has forked")
        + script(
            "neighbour",
            f"touch {MEET}/neighbour",
            *limits,
            meet("eater-over"),
            meet("forker-over"),
            "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2 & done; wait",
            *BURN.splitlines(),
            "echo went on",
        )
    )
    async with farm.manager():
        jobs = await farm.jobs(await farm.push(pipeline))
        eater, forker, neighbour = jobs["eater"], jobs["forker"], jobs["neighbour"]
        assert (eater["status"], eater["failure_reason"]) == ("failed", "script_failure"), eater["log"]
        assert "the job used more memory than its limit of 96 MiB, and was killed" in eater["log"]
        assert "O has eaten" not in eater["log"]
        assert forker["status"] == "failed", forker["log"]
        assert "BlockingIOError" in forker["log"]
        assert "the job could not start more than 40 processes, which is its limit" in forker["log"]
        assert neighbour["status"] == "success", neighbour["log"]
        assert "O went on" in neighbour["log"]
        used = {name: await farm.used(job["id"]) for name, job in jobs.items()}
        assert {one["source"] for one in used.values()} == {"cgroup"}
        if Path("/sys/fs/cgroup/memory").exists():
            assert all(f"O {value}" in neighbour["log"] for value in (96 << 20, 40, 150000)), neighbour["log"]
        processor = {name: one["cpu_user_seconds"] + one["cpu_system_seconds"] for name, one in used.items()}
        assert processor["neighbour"] >= 1 > processor["forker"]
        assert 60 << 20 < used["eater"]["memory_peak_bytes"] <= 96 << 20
        assert used["neighbour"]["memory_peak_bytes"] < used["eater"]["memory_peak_bytes"]
        await until(lambda: not slot_groups(yard) and not living("sleep 20"), seconds=20)


async def test_a_job_sees_nothing_of_its_neighbour_and_of_whom_it_follows(farm: Any, yard: Yard) -> None:
    configure(farm, yard, "", capacity=2, runner="use_slot_cgroups = true")
    one = (
        f"echo mine >open; id -u >{MEET}/uid; pwd >{MEET}/folder",
        "umask 077; echo mine >secret; echo mine >/tmp/of-one; mkdir /dev/shm/of-one; echo mine >/var/tmp/of-one",
        f"touch {MEET}/one",
        meet("two"),
    )
    refused = "echo refused; else echo got it; exit 1; fi"
    two = (
        meet("one"),
        f"folder=$(cat {MEET}/folder); uid=$(cat {MEET}/uid); base=${{folder%%/builds/*}}",
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
        f"touch {MEET}/two",
    )
    after = (
        "touch /tmp/of-$CI_JOB_NAME",
        "for f in /tmp/of-one /var/tmp/of-one /dev/shm/of-one; do if [ -e $f ]; then exit 1; fi; done",
        f"touch {MEET}/$CI_JOB_NAME; until [ -e {MEET}/three -a -e {MEET}/four ]; do sleep 0.1; done; id -u",
    )
    pipeline = PLAIN + "stages: [first, then]\n"
    for name, lines in (("one", one), ("two", two)):
        pipeline += script(name, *lines, more="  stage: first\n  timeout: 30s\n  variables: {WHOSE: mine-alone}\n")
    for name in ("three", "four"):
        pipeline += script(name, *after, more="  stage: then\n")
    async with farm.manager():
        jobs = await farm.jobs(await farm.push(pipeline))
        logs = "\n".join(job["log"] for job in jobs.values())
        assert {job["status"] for job in jobs.values()} == {"success"}, logs
        assert "O looked at a process" in jobs["two"]["log"]
        assert "O got it" not in jobs["two"]["log"]
        # Both slots have been used again, by their own users.
        assert all(f"O {uid}" in jobs["three"]["log"] + jobs["four"]["log"] for uid in (21000, 21001)), logs


async def test_everything_of_a_late_job_is_gone_before_the_next_one(farm: Any, yard: Yard) -> None:
    """What has left its session and cleared its environment, and does not listen to signals, too."""
    configure(farm, yard, "", capacity=1, runner="use_slot_cgroups = true\nlimit = 1")
    daemon = "setsid env -i sh -c 'trap \"\" TERM HUP; (sleep 617 &) ; sleep 618' >/dev/null 2>&1 </dev/null &"
    late = script("late", daemon, "sleep 619", more="  timeout: 10s\n  stage: first\n  allow_failure: true\n")
    look = "for p in /proc/[0-9]*; do if grep -qa '^sleep.6' $p/cmdline; then echo there is $p; exit 1; fi; done"
    after = script("after", look, "id -u; ls -d /sys/fs/cgroup/*/gitlab-runner/slot-* || true", more="  stage: then\n")
    async with farm.manager():
        jobs = await farm.jobs(await farm.push(f"{PLAIN}stages: [first, then]\n{late}{after}"))
        assert jobs["late"]["failure_reason"] == "job_execution_timeout", jobs["late"]["log"]
        assert jobs["after"]["status"] == "success", jobs["after"]["log"]
        assert "O 21000" in jobs["after"]["log"]
        assert not [line for number in (617, 618, 619) for line in living(f"sleep {number}")]
        await until(lambda: not slot_groups(yard), seconds=20)


async def test_a_machine_without_control_groups_runs_no_job_that_has_limits(bare: Any) -> None:
    """Without limits it does, and says what is missing; what a job leaves is found by its user."""
    own = "[runners.remuda]\nfirst_uid = 21000\n"
    autoscaler = "max_instances = 1\ncapacity_per_instance = 2"
    bare.configure(runner=f"use_slot_cgroups = true\n{own}", autoscaler=autoscaler, policy='idle_time = "60s"')
    leave = "setsid env -i sleep 627 >/dev/null 2>&1 </dev/null & sleep 0.5"
    async with bare.manager():
        jobs = await bare.jobs(await bare.push(PLAIN + script("free", leave, "echo ran")))
        assert jobs["free"]["status"] == "success", jobs["free"]["log"]
        assert "O ran" in jobs["free"]["log"]
        warning = "WARNING: the job's processes are not in the control group /gitlab-runner/slot-0: "
        assert warning in jobs["free"]["log"]
        assert not living("sleep 627")
    bare.configure(runner=f'{own}slot_memory = "64m"\n', autoscaler=autoscaler, policy='idle_time = "60s"')
    async with bare.manager():
        jobs = await bare.jobs(await bare.push(PLAIN + script("held", "echo ran")))
        assert (jobs["held"]["status"], jobs["held"]["failure_reason"]) == ("failed", "runner_system_failure")
        assert "this runner limits jobs by slot_memory, which cannot be done on this machine: " in jobs["held"]["log"]
        assert "O ran" not in jobs["held"]["log"]


async def test_slots_are_numbered_by_machine(farm: Any, yard: Yard) -> None:
    """As an operator expects who has prepared control groups on every machine."""
    configure(farm, yard, "", capacity=1, machines=2, runner="use_slot_cgroups = true")
    lines = (
        "echo the group is $GITLAB_RUNNER_SLOT_CGROUP",
        "grep -c gitlab-runner/slot-0/ /proc/self/cgroup",
        "sleep 4",
    )
    async with farm.manager():
        jobs = await farm.jobs(await farm.push(PLAIN + script("one", *lines) + script("two", *lines)))
        assert {job["status"] for job in jobs.values()} == {"success"}, jobs
        assert all("O the group is gitlab-runner/slot-0" in job["log"] for job in jobs.values()), jobs
        assert len(list(yard.folder.glob("machines/*"))) == 2


@pytest.fixture
def group_name() -> Iterator[str]:
    """Machines of the lab that have an engine have this machine's control groups."""
    name = f"remuda-tests/{token_hex(4)}"
    yield name
    for top in Path("/sys/fs/cgroup").glob(f"**/{name}"):
        for folder in (*sorted(top.rglob("*/"), reverse=True), top):
            with suppress(OSError):
                folder.rmdir()


async def test_containers_of_two_slots_keep_apart_and_go(site: Any, tmp_path: Path, group_name: str) -> None:
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    (tmp_path / "image.tar").write_bytes(busybox_files())
    (tmp_path / "meet").mkdir()
    begin = (
        "setsid dockerd --shutdown-timeout 1 >/root/dockerd.log 2>&1 </dev/null & "
        "until docker info >/dev/null 2>&1; do sleep 0.1; done; "
        f"docker import {tmp_path}/image.tar {BUSYBOX} >&2"
    )
    site.configure(
        executor="docker-autoscaler",
        runner=(
            f'slot_cgroup_template = "{group_name}/slot-${{slot}}"\n[runners.remuda]\nslot_memory = "96m"\n'
            f'[runners.docker]\npull_policy = "never"\nimage = "{BUSYBOX}"\nvolumes = ["{tmp_path}/meet:{MEET}"]\n'
        ),
        autoscaler=f"max_instances = 1\ncapacity_per_instance = 2\ninstance_ready_command = '''{begin}'''",
        policy='idle_time = "60s"',
    )
    eater = (
        meet("neighbour"),
        f"echo mine >secret; sleep 637 & pwd >{MEET}/folder; touch {MEET}/eater",
        meet("looked"),
        "dd if=/dev/zero of=/dev/null bs=300M count=1",
        "echo has eaten",
    )
    neighbour = (
        f"touch {MEET}/neighbour; cat /proc/self/cgroup",
        meet("eater"),
        "if ps | grep 'sleep 63[7]'; then exit 1; fi",
        f"if cat $(cat {MEET}/folder)/secret; then exit 1; fi",
        f"touch {MEET}/looked",
        meet("eater-over"),
        "echo went on",
    )
    over = f"  after_script: [touch {MEET}/eater-over]\n  timeout: 40s\n"
    neighbour_job = script("neighbour", *neighbour, more="  timeout: 40s\n")
    async with site.manager():
        jobs = await site.jobs(await site.push(PLAIN + script("eater", *eater, more=over) + neighbour_job))
        told = jobs["eater"]["log"]
        assert jobs["eater"]["failure_reason"] == "script_failure", told
        assert "The kernel killed processes of this container: they used more memory than its limit" in told
        assert "O has eaten" not in told
        assert jobs["neighbour"]["status"] == "success", jobs["neighbour"]["log"]
        assert f"/{group_name}/slot-" in jobs["neighbour"]["log"]
        used = await site.used(jobs["eater"]["id"])
        assert (used["source"], used["memory_peak_bytes"] > 60 << 20) == ("cgroup", True)
        [machine] = site.group.instances.values()
        assert machine.run("docker ps -aq").stdout == ""
        assert not living("sleep 637")
        await until(lambda: not list(Path("/sys/fs/cgroup/memory").glob(f"{group_name}/slot-*")), seconds=20)
