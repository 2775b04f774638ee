"""Conversion of the container options and limits to the engine's API."""

from typing import Any

import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.sizes import format_size, parse_size
from remuda.stdsteps.container.options import host_config, mounts, network_config


def test_options_are_converted() -> None:
    options = {
        "memory": "64m",
        "cpus": "1.5",
        "pids_limit": 50.0,
        "privileged": False,
        "cap_add": ["NET_ADMIN"],
        "devices": ["/dev/fuse", "/dev/a:/dev/b:r"],
        "ulimit": {"nofile": "10:20", "core": "0"},
        "dns": [],
        "shm_size": 1024,
    }
    assert host_config(options) == {
        "Memory": 64 << 20,
        "NanoCpus": 1_500_000_000,
        "PidsLimit": 50,
        "CapAdd": ["NET_ADMIN"],
        "Devices": [
            {"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/fuse", "CgroupPermissions": "rwm"},
            {"PathOnHost": "/dev/a", "PathInContainer": "/dev/b", "CgroupPermissions": "r"},
        ],
        "Ulimits": [{"Name": "nofile", "Soft": 10, "Hard": 20}, {"Name": "core", "Soft": 0, "Hard": 0}],
        "ShmSize": 1024,
    }


def test_the_stricter_of_option_and_policy_counts() -> None:
    limits = {"memory_bytes": 100, "cpus": 2.0, "pids": 5, "network": [["a.example"]]}
    assert host_config({"memory": 50, "cpus": 4}, limits) == {
        "Memory": 50,
        "NanoCpus": 2_000_000_000,
        "PidsLimit": 5,
        "MemorySwap": 50,
    }
    assert host_config({}, {"network": [["a.example"], []]}) == {"NetworkMode": "none"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memmory": "1g"}, "memmory is unknown; did you mean memory"),
        ({"zzz": 1}, "zzz is unknown; known: memory"),
        ({"memory": "1x"}, "options.memory: '1x' is not a size"),
        ({"cpus": True}, "not a number of processors"),
        ({"pids_limit": 1.5}, "a whole number"),
        ({"cap_add": "ALL"}, "a list of strings"),
        ({"privileged": "yes"}, "true or false"),
        ({"ulimit": {"nofile": "x"}}, "options.ulimit.nofile"),
        ({"tmpfs": ["/x"]}, "a mapping"),
        ({"runtime": 5}, "a string"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(StepError, match=message):
        host_config(options)


def test_volumes_are_converted() -> None:
    assert mounts(["/a:/b:ro", "/c", "name:/d"]) == (["/a:/b:ro", "name:/d"], {"/c": {}})
    with pytest.raises(StepError, match="neither a path"):
        mounts(["relative"])


def test_sizes_are_parsed_and_formatted() -> None:
    sizes = ["", "0", "10", "1k", "2m", "1.5g", "1G", "3mb", "4 MiB", "5tb"]
    assert [parse_size(text, "x") for text in sizes] == [
        *(0, 0, 10, 1024, 2 << 20, 3 << 29, 1 << 30, 3 << 20, 4 << 20, 5 << 40)
    ]
    assert [format_size(size) for size in (5, 2048, 3 << 19, 5 << 30)] == ["5 bytes", "2.0 KiB", "1.5 MiB", "5.0 GiB"]
    with pytest.raises(StepError, match="not a size"):
        parse_size("many", "x")


def test_options_with_other_names_in_the_api() -> None:
    options = {
        "gpus": "all",
        "log_options": {"max-size": "10m"},
        "device_cgroup_rules": ["c 1:5 r"],
        "links": ["db:db"],
        "volumes_from": ["data:ro"],
        "volume_driver": "local",
        "pid_mode": "host",
        "ipc_mode": "private",
        "cgroup_parent": "/ci",
        "cpuset_mems": "0",
        "network_mtu": 1450,
        "enable_ipv6": True,
    }
    assert host_config(options) == {
        "DeviceRequests": [{"Capabilities": [["gpu"]], "Count": -1}],
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m"}},
        "DeviceCgroupRules": ["c 1:5 r"],
        "Links": ["db:db"],
        "VolumesFrom": ["data:ro"],
        "VolumeDriver": "local",
        "PidMode": "host",
        "IpcMode": "private",
        "CgroupParent": "/ci",
        "CpusetMems": "0",
    }
    assert network_config(options) == {
        "Options": {"com.docker.network.driver.mtu": "1450"},
        "EnableIPv6": True,
    }
    assert network_config({}) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2", {"Count": 2}), ("device=0,GPU-7", {"DeviceIDs": ["0", "GPU-7"]}), ('"all"', {"Count": -1})],
)
def test_gpus_are_converted(text: str, expected: dict[str, Any]) -> None:
    assert host_config({"gpus": text})["DeviceRequests"] == [{"Capabilities": [["gpu"]]} | expected]
    with pytest.raises(StepError, match="must be all"):
        host_config({"gpus": "some"})
