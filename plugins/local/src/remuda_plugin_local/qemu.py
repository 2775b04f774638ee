"""Start of a machine of kind `qemu`: its cloud-init drive, and its command.

The drive is cloud-init's NoCloud (a FAT file system labelled CIDATA with `meta-data` and `user-data`), so cloud images
work unchanged. The network is QEMU's user network, which needs no root: a port of this host's loopback leads to the
machine's port 22, and the machine reaches this host's loopback as 10.0.2.2."""

import json
import random
import socket
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from remuda.fleeting import TemporaryError
from remuda_plugin_local.config import Config
from remuda_plugin_local.keys import new_key, public_half

MEMORY_BYTES = 1 << 30
PORTS = range(20_000, 30_000)
"""Below the kernel's ephemeral ports."""
_TRIES = 200


def user_data(machine: str, *, login: str, authorized: str, host_key: bytes) -> str:
    """`user-data` of cloud-init, as JSON, which is valid YAML. `login`: user to create; `authorized`: public key of the
    user; `host_key`: private key of the machine's SSH server."""
    user: dict[str, object] = {"name": login, "ssh_authorized_keys": [authorized], "lock_passwd": True}
    if login != "root":
        user |= {"sudo": "ALL=(ALL) NOPASSWD:ALL", "shell": "/bin/bash"}
    data = {
        "hostname": machine,
        "disable_root": login != "root",
        "users": [user],
        "ssh_keys": {"ed25519_private": host_key.decode(), "ed25519_public": public_half(host_key)},
    }
    return f"#cloud-config\n{json.dumps(data, indent=2)}\n"


def prepare(folder: Path, machine: str, *, login: str, authorized: str) -> None:
    """Write the files of the cloud-init drive into a machine's folder. Parameters as of `user_data`."""
    seed = folder / "seed"
    seed.mkdir(exist_ok=True)
    (seed / "meta-data").write_text(json.dumps({"instance-id": machine, "local-hostname": machine}) + "\n")
    (seed / "user-data").write_text(user_data(machine, login=login, authorized=authorized, host_key=new_key()))


def free_port(taken: Collection[int]) -> int:
    """A port of this host's loopback without a listener and not in `taken`. Raises TemporaryError if none is found. If
    two machines choose the same port, one of them ends at once."""
    for port in random.sample(PORTS, _TRIES):
        if port not in taken:
            with closing(socket.socket()) as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
                return port
    raise TemporaryError(f"no free port between {PORTS.start} and {PORTS.stop} of this host was found")


def command(config: Config, machine: str, folder: Path, *, port: int) -> tuple[dict[str, str], list[str]]:
    """Environment and arguments of the command that starts a machine. `port`: port of this host for logins."""
    qemu = config.qemu
    network = f"user,id=net0,restrict={'on' if qemu.restrict else 'off'},hostfwd=tcp:127.0.0.1:{port}-:22"
    words = [qemu.program, "-name", machine, "-nodefaults", "-no-user-config", "-display", "none"]
    words += ["-machine", qemu.machine, "-accel", qemu.accel, "-cpu", "max"]
    words += ["-m", f"{(config.memory_bytes or MEMORY_BYTES) >> 20}M", "-smp", str(max(1, round(config.cpus)))]
    words += ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny"]
    if qemu.kernel:
        words += ["-kernel", qemu.kernel, "-append", qemu.append]
    if qemu.initrd:
        words += ["-initrd", qemu.initrd]
    words += ["-drive", f"file={qemu.disk},format={qemu.disk_format},if=virtio,snapshot=on"]
    words += ["-drive", f"driver=vvfat,dir={folder / 'seed'},label=CIDATA,read-only=on,if=virtio"]
    words += ["-netdev", network, "-device", "virtio-net-pci,netdev=net0,romfile=", "-device", "virtio-rng-pci"]
    words += ["-serial", f"file:{folder / 'console'}", *qemu.arguments]
    # QEMU stores the machine's writes in an unnamed file in this folder, which disappears with QEMU.
    return {"TMPDIR": str(folder)}, words
