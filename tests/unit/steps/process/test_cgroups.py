"""Control groups in an imitated folder. Version 2 is imitated because the test machines have version 1, which the
integration tests use."""

from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.steps.process.cgroups import StepGroup, find_groups
from remuda.steps.process.limits import Limits, StepUsage

CreateProc = Callable[..., Path]


@pytest.fixture
def create_proc(tmp_path: Path) -> CreateProc:
    """Return a function that creates the /proc/self folder of a process in a group, with mounted hierarchies."""

    def create(groups: str, *mounts: str, controllers: str = "cpu io memory pids", enabled: str = "") -> Path:
        proc = tmp_path / "proc"
        proc.mkdir()
        (proc / "cgroup").write_text(groups)
        lines = [f"30 1 0:1 {mount.replace('ROOT', str(tmp_path))}" for mount in mounts]
        (proc / "mountinfo").write_text("\n".join(["29 1 0:2 / /proc rw - proc proc rw", *lines]) + "\n")
        group = tmp_path / "fs" / "agent"
        group.mkdir(parents=True)
        (group / "cgroup.controllers").write_text(controllers)
        (group / "cgroup.subtree_control").write_text(enabled)
        return proc

    return create


V2 = "/ ROOT/fs rw - cgroup2 cgroup2 rw"


def test_version_2_sets_limits_and_reports_usage(create_proc: CreateProc, tmp_path: Path) -> None:
    proc = create_proc("0::/agent\n", V2, enabled="cpu io memory pids")
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


def test_a_mount_of_a_part_of_the_hierarchy(create_proc: CreateProc, tmp_path: Path) -> None:
    """A container without a cgroup namespace has such a mount."""
    proc = create_proc(
        "0::/docker/1/agent\n", "/docker/1 ROOT/fs rw - cgroup2 cgroup2 rw", controllers="memory", enabled="memory"
    )
    groups = find_groups("remuda-1", proc=proc, parent="")
    assert groups.v2 == tmp_path / "fs/agent/remuda-1"
    assert groups.limits("memory")
    assert not groups.limits("cpu")


def test_version_1_is_preferred_to_an_empty_version_2(create_proc: CreateProc, tmp_path: Path) -> None:
    lines = "2:cpu,cpuacct:/\n1:memory:/agent\n0::/agent\n"
    mounts = ("/ ROOT/fs rw - cgroup cgroup rw,memory", "/ ROOT/cpu rw - cgroup cgroup rw,cpu,cpuacct", V2)
    proc = create_proc(lines, *mounts, controllers="hugetlb")
    groups = find_groups("remuda-1", proc=proc, parent="")
    assert dict(groups.v1) == {
        "memory": tmp_path / "fs/agent/remuda-1",
        "cpu": tmp_path / "cpu/remuda-1",
        "cpuacct": tmp_path / "cpu/remuda-1",
    }
    assert groups.folders() == (tmp_path / "fs/agent/remuda-1", tmp_path / "cpu/remuda-1")
    assert groups.v2 is None
    assert groups.lacking == {"pids": "this machine has no control groups for it"}


def test_a_machine_without_control_groups(create_proc: CreateProc) -> None:
    groups = find_groups("remuda-1", proc=create_proc(""), parent="")
    assert groups.folders() == ()
    assert set(groups.lacking) == {"memory", "cpu", "pids"}


def test_a_configured_parent_is_used_in_every_hierarchy(create_proc: CreateProc, tmp_path: Path) -> None:
    proc = create_proc("1:memory:/agent\n", "/ ROOT/fs rw - cgroup cgroup rw,memory")
    assert find_groups("remuda-1", proc=proc, parent="/ci").v1 == {"memory": tmp_path / "fs/ci/remuda-1"}
