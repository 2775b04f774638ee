"""Converts container options, with the names of GitLab runner's config.toml, to fields of Docker's API. No I/O. An
unknown name is an error. Limits of the job's policy are added; of two limits the stricter one counts."""

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.sizes import parse_size

Body = dict[str, Any]
NANO = 1_000_000_000
NETWORK = ("network_mtu", "enable_ipv6")
"""Options of the job's network, not of a container."""


def host_config(options: Mapping[str, Any], limits: Mapping[str, Any] | None = None) -> Body:
    """Return a container's `HostConfig`. `limits`: those of the job's policy. Raises StepError for invalid options."""
    body: Body = {}
    for name, value in options.items():
        if name not in _OPTIONS and name not in NETWORK:
            close = difflib.get_close_matches(name, _OPTIONS, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(_OPTIONS)}"
            raise StepError(f"options: {name} is unknown{hint}")
        if name in NETWORK or value in ("", None, [], {}, False):
            continue
        key, read = _OPTIONS[name]
        body[key] = read(value, f"options.{name}")
    return _apply_limits(body, limits or {})


def network_config(options: Mapping[str, Any]) -> Body:
    """Return the fields that the options (MTU, IPv6) set in the engine's call that creates a network."""
    body: Body = {}
    if mtu := _number(options.get("network_mtu") or 0, "options.network_mtu"):
        body["Options"] = {"com.docker.network.driver.mtu": str(mtu)}
    if _flag(options.get("enable_ipv6") or False, "options.enable_ipv6"):
        body["EnableIPv6"] = True
    return body


def mounts(volumes: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Split volumes into bind mounts (`/host:/inside[:ro]`) and anonymous volumes (`/inside`). Raises StepError if a
    volume has neither form."""
    for volume in volumes:
        if not volume.rpartition(":")[0] and not volume.startswith("/"):
            raise StepError(f"volumes: {volume!r} is neither a path in the container nor SOURCE:PATH[:OPTIONS]")
    return [volume for volume in volumes if ":" in volume], {volume: {} for volume in volumes if ":" not in volume}


def _apply_limits(body: Body, limits: Mapping[str, Any]) -> Body:
    """Set the policy's `limits` in the `HostConfig` `body` where they are stricter than its values; returns `body`."""
    for key, limit in (
        ("Memory", limits.get("memory_bytes")),
        ("NanoCpus", int(limits["cpus"] * NANO) if limits.get("cpus") else None),
        ("PidsLimit", limits.get("pids")),
    ):
        if limit and (not body.get(key) or body[key] > limit):
            body[key] = limit
    if body.get("Memory") and "MemorySwap" not in body and limits.get("memory_bytes"):
        body["MemorySwap"] = body["Memory"]
    network = limits.get("network")
    if network is not None and not all(network):
        body["NetworkMode"] = "none"
    return body


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise StepError(f"{where}: must be a string")
    return value


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise StepError(f"{where}: must be true or false")
    return value


def _number(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise StepError(f"{where}: must be a whole number")
    return int(value)


def _size(value: object, where: str) -> int:
    return _number(value, where) if isinstance(value, int | float) else parse_size(_text(value, where), where)


def _cpus(value: object, where: str) -> int:
    try:
        return int(float(_text(value, where) if isinstance(value, str) else _cpu_number(value)) * NANO)
    except ValueError:
        raise StepError(f"{where}: {value!r} is not a number of processors, such as 1.5") from None


def _cpu_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    return value


def _texts(value: object, where: str) -> list[str]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise StepError(f"{where}: must be a list of strings")


def _mapping(value: object, where: str) -> dict[str, str]:
    if isinstance(value, dict):
        return {str(key): str(item) for key, item in value.items()}
    raise StepError(f"{where}: must be a mapping of names to strings")


def _devices(value: object, where: str) -> list[dict[str, str]]:
    devices = []
    for device in _texts(value, where):
        source, _, rest = device.partition(":")
        inside, _, rights = rest.partition(":")
        devices.append(
            {"PathOnHost": source, "PathInContainer": inside or source, "CgroupPermissions": rights or "rwm"}
        )
    return devices


def _gpus(value: object, where: str) -> list[dict[str, Any]]:
    """Convert the option `gpus` (`all`, a number, or `device=ID,ID`) to the engine's device requests. Raises StepError
    if the value is none of these; `where` is the option's name in the message."""
    text = _text(value, where).strip().strip('"')
    request: dict[str, Any] = {"Capabilities": [["gpu"]]}
    if text.startswith("device="):
        return [request | {"DeviceIDs": text.removeprefix("device=").split(",")}]
    if text != "all" and not text.isdigit():
        raise StepError(f"{where}: must be all, a number or device=ID,ID, not {text!r}")
    return [request | {"Count": -1 if text == "all" else int(text)}]


def _log(value: object, where: str) -> dict[str, Any]:
    return {"Type": "json-file", "Config": _mapping(value, where)}


def _ulimits(value: object, where: str) -> list[dict[str, Any]]:
    ulimits = []
    for name, text in _mapping(value, where).items():
        soft, _, hard = text.partition(":")
        try:
            ulimits.append({"Name": name, "Soft": int(soft), "Hard": int(hard or soft)})
        except ValueError:
            raise StepError(f"{where}.{name}: {text!r} is not a limit; write SOFT or SOFT:HARD") from None
    return ulimits


_OPTIONS: Mapping[str, tuple[str, Callable[[object, str], Any]]] = {
    "memory": ("Memory", _size),
    "memory_swap": ("MemorySwap", _size),
    "memory_reservation": ("MemoryReservation", _size),
    "cpus": ("NanoCpus", _cpus),
    "cpuset_cpus": ("CpusetCpus", _text),
    "cpuset_mems": ("CpusetMems", _text),
    "cpu_shares": ("CpuShares", _number),
    "cgroup_parent": ("CgroupParent", _text),
    "gpus": ("DeviceRequests", _gpus),
    "pids_limit": ("PidsLimit", _number),
    "shm_size": ("ShmSize", _size),
    "oom_kill_disable": ("OomKillDisable", _flag),
    "oom_score_adjust": ("OomScoreAdj", _number),
    "privileged": ("Privileged", _flag),
    "cap_add": ("CapAdd", _texts),
    "cap_drop": ("CapDrop", _texts),
    "security_opt": ("SecurityOpt", _texts),
    "group_add": ("GroupAdd", _texts),
    "devices": ("Devices", _devices),
    "device_cgroup_rules": ("DeviceCgroupRules", _texts),
    "links": ("Links", _texts),
    "volumes_from": ("VolumesFrom", _texts),
    "volume_driver": ("VolumeDriver", _text),
    "pid_mode": ("PidMode", _text),
    "ipc_mode": ("IpcMode", _text),
    "log_options": ("LogConfig", _log),
    "dns": ("Dns", _texts),
    "dns_search": ("DnsSearch", _texts),
    "extra_hosts": ("ExtraHosts", _texts),
    "sysctls": ("Sysctls", _mapping),
    "tmpfs": ("Tmpfs", _mapping),
    "ulimit": ("Ulimits", _ulimits),
    "runtime": ("Runtime", _text),
    "userns_mode": ("UsernsMode", _text),
    "isolation": ("Isolation", _text),
    "init": ("Init", _flag),
}
