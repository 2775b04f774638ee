"""Version 2 on a folder that looks like it: the machines that run these tests have version 1 (see integration)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.steps.process.cgroups import StepGroup, find_groups
from remuda.steps.process.limits import Limits, StepUsage

Make = Callable[..., Path]


@pytest.fixture
def machine(tmp_path: Path) -> Make:
    """/proc/self of a process in a group, with the hierarchies that are mounted."""

    def build(groups: str, *mounts: str, controllers: str = "cpu io memory pids", enabled: str = "") -> Path:
        proc = tmp_path / "proc"
        proc.mkdir()
        (proc / "cgroup").write_text(groups)
        lines = [f"30 1 0:1 {mount.replace('AT', str(tmp_path))}" for mount in mounts]
        (proc / "mountinfo").write_text("\n".join(["29 1 0:2 / /proc rw - proc proc rw", *lines]) + "\n")
        own = tmp_path / "fs" / "agent"
        own.mkdir(parents=True)
        (own / "cgroup.controllers").write_text(controllers)
        (own / "cgroup.subtree_control").write_text(enabled)
        return proc

    return build


V2 = "/ AT/fs rw - cgroup2 cgroup2 rw"


def test_version_2_sets_limits_and_tells_use(machine: Make, tmp_path: Path) -> None:
    proc = machine("0::/agent\n", V2, enabled="cpu io memory pids")
    groups = find_groups("remuda-1", proc=proc, parent="")
    assert all(groups.limits(name) for name in ("memory", "cpu", "pids"))
    step = StepGroup(groups=groups, key="job.1")
    folder = tmp_path / "fs/agent/remuda-1/job.1"
    folder.mkdir(parents=True)
    (folder.parent / "cgroup.subtree_control").write_text("cpu io memory pids")
    (folder / "memory.swap.max").write_text("max")
    step.make(Limits(memory_bytes=2**20, cpus=1.5, pids=7))
    written = {name: (folder / name).read_text() for name in ("memory.max", "memory.swap.max", "cpu.max", "pids.max")}
    assert written == {
        "memory.max": str(2**20),
        "memory.swap.max": "0",
        "cpu.max": "150000 100000",
        "pids.max": "7",
    }
    (folder / "memory.events").write_text("low 0\nmax 3\noom 1\noom_kill 2\n")
    (folder / "pids.events").write_text("max 4\n")
    (folder / "memory.peak").write_text("900000\n")
    (folder / "cpu.stat").write_text("usage_usec 3000000\nuser_usec 2000000\nsystem_usec 1000000\n")
    (folder / "io.stat").write_text("8:0 rbytes=10 wbytes=20 rios=1 wios=1\n8:16 rbytes=1 wbytes=2\n")
    assert (step.count_memory_kills(), step.count_refused_forks()) == (2, 4)
    assert step.usage() == StepUsage(
        cpu_user_seconds=2.0, cpu_system_seconds=1.0, memory_peak_bytes=900000, io_read_bytes=11, io_write_bytes=22
    )
    assert step.joins == (str(folder / "cgroup.procs"),)


def test_mount_that_shows_a_part_of_the_hierarchy(machine: Make, tmp_path: Path) -> None:
    """As in a container without a namespace for groups."""
    proc = machine(
        "0::/docker/1/agent\n", "/docker/1 AT/fs rw - cgroup2 cgroup2 rw", controllers="memory", enabled="memory"
    )
    groups = find_groups("remuda-1", proc=proc, parent="")
    assert groups.v2 == tmp_path / "fs/agent/remuda-1"
    assert groups.limits("memory")
    assert not groups.limits("cpu")


def test_version_1_comes_before_an_empty_version_2(machine: Make, tmp_path: Path) -> None:
    lines = "2:cpu,cpuacct:/\n1:memory:/agent\n0::/agent\n"
    mounts = ("/ AT/fs rw - cgroup cgroup rw,memory", "/ AT/cpu rw - cgroup cgroup rw,cpu,cpuacct", V2)
    proc = machine(lines, *mounts, controllers="hugetlb")
    groups = find_groups("remuda-1", proc=proc, parent="")
    assert dict(groups.v1) == {
        "memory": tmp_path / "fs/agent/remuda-1",
        "cpu": tmp_path / "cpu/remuda-1",
        "cpuacct": tmp_path / "cpu/remuda-1",
    }
    assert groups.folders() == (tmp_path / "fs/agent/remuda-1", tmp_path / "cpu/remuda-1")
    assert groups.v2 is None
    assert groups.lacking == {"pids": "this machine has no control groups for it"}


def test_machine_without_groups(machine: Make) -> None:
    groups = find_groups("remuda-1", proc=machine(""), parent="")
    assert groups.folders() == ()
    assert set(groups.lacking) == {"memory", "cpu", "pids"}


def test_named_parent_is_used_in_every_hierarchy(machine: Make, tmp_path: Path) -> None:
    proc = machine("1:memory:/agent\n", "/ AT/fs rw - cgroup cgroup rw,memory")
    assert find_groups("remuda-1", proc=proc, parent="/ci").v1 == {"memory": tmp_path / "fs/ci/remuda-1"}
