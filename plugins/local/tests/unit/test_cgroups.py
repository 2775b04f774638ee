from pathlib import Path

import pytest

from remuda_plugin_local.cgroups import hierarchies, missing_for, settings

VERSION_1 = """cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0
cgroup /sys/fs/cgroup/perf_event cgroup rw,perf_event 0 0
proc /proc proc rw 0 0
"""
VERSION_2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"


def test_hierarchies_and_settings_of_version_1() -> None:
    memory, cpu, _ = mounted = hierarchies(VERSION_1, {})
    assert [(str(hierarchy.path.name), hierarchy.options) for hierarchy in mounted] == [
        ("memory", "memory"),
        ("cpu,cpuacct", "cpu,cpuacct"),
        ("systemd", "name=systemd"),
    ]
    assert missing_for(mounted, memory_bytes=1, cpus=1) == ""
    assert settings(memory, memory_bytes=64, cpus=1.5) == {"memory.limit_in_bytes": "64"}
    assert settings(cpu, memory_bytes=64, cpus=1.5) == {
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "150000",
    }
    assert settings(cpu, memory_bytes=0, cpus=0) == {}


def test_hierarchies_and_settings_of_version_2() -> None:
    [hierarchy] = hierarchies(VERSION_2, {"/sys/fs/cgroup": "cpu memory pids"})
    assert (hierarchy.path, hierarchy.options) == (Path("/sys/fs/cgroup"), "")
    assert settings(hierarchy, memory_bytes=64, cpus=0.5) == {"memory.max": "64", "cpu.max": "50000 100000"}


@pytest.mark.parametrize(
    ("memory_bytes", "cpus", "expected"), [(0, 0, ""), (1, 0, "memory"), (1, 1, "memory, cpu"), (0, 0.1, "cpu")]
)
def test_limits_need_controllers(memory_bytes: int, cpus: float, expected: str) -> None:
    assert missing_for(hierarchies(VERSION_2, {}), memory_bytes=memory_bytes, cpus=cpus) == expected
