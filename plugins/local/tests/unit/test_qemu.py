import json
from pathlib import Path

from remuda_plugin_local.config import Config, QemuConfig
from remuda_plugin_local.keys import new_key, public_half
from remuda_plugin_local.qemu import PORTS, command, free_port, user_data


def test_user_data_of_cloud_init() -> None:
    key = new_key()
    first, _, rest = user_data("g-1", login="root", authorized="ssh-ed25519 AAA", host_key=key).partition("\n")
    data = json.loads(rest)
    assert first == "#cloud-config"
    assert data["users"] == [{"name": "root", "ssh_authorized_keys": ["ssh-ed25519 AAA"], "lock_passwd": True}]
    assert (data["hostname"], data["disable_root"]) == ("g-1", False)
    assert data["ssh_keys"] == {"ed25519_private": key.decode(), "ed25519_public": public_half(key)}


def test_the_qemu_command_line() -> None:
    config = Config(kind="qemu", memory="2g", cpus=2, qemu=QemuConfig(disk="/d.img", kernel="/k", restrict=True))
    environment, arguments = command(config, "g-1", Path("/f"), port=20_001)
    assert environment == {"TMPDIR": "/f"}
    assert arguments[arguments.index("-m") + 1 : arguments.index("-m") + 4] == ["2048M", "-smp", "2"]
    assert "file=/d.img,format=qcow2,if=virtio,snapshot=on" in arguments
    assert "user,id=net0,restrict=on,hostfwd=tcp:127.0.0.1:20001-:22" in arguments
    assert arguments[arguments.index("-kernel") + 1] == "/k"
    assert "-initrd" not in arguments


def test_ports_in_use_are_not_chosen() -> None:
    used = set(PORTS[:5000])
    assert free_port(used) in PORTS[5000:]
