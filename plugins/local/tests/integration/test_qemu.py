"""Machines of kind qemu, with a small disk that the tests make, a kernel of Debian and the sshd of this machine."""

import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.machines.debian_kernel import PACKAGE, debian_kernel
from tests.support.machines.local_groups import run_on_machine

from remuda.fleeting import InProcess, InstanceState, Settings
from remuda.testing.plugin_groups import wait_for_states
from remuda_plugin_local import LocalGroup

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
BOOT_SECONDS = 200.0
MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "vfat", "nls_cp437", "nls_ascii", "virtio_rng")
DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /bin /proc /sys /dev /new /seed
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in MODULES; do insmod /modules/$module.ko; done
mount -t ext4 /dev/vda /new
mount -t vfat -o ro /dev/vdb1 /seed
hostname "$(sed -n 's/.*"local-hostname": "\\([^"]*\\)".*/\\1/p' /seed/meta-data)"
mkdir -p /new/root/.ssh
sed -n 's/ *"\\(ssh-ed25519 [^"]*\\)"$/\\1/p' /seed/user-data >/new/root/.ssh/authorized_keys
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
for folder in proc sys dev; do mount --bind /$folder /new/$folder; done
mkdir -p /new/dev/pts /new/run/sshd
mount -t devpts devpts /new/dev/pts
exec chroot /new /usr/sbin/sshd -D -e -f /dev/null -o UsePAM=no -o StrictModes=no -o UseDNS=no
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, small_root: Path) -> Mapping[str, str]:
    """Paths of the kernel, the initial RAM disk and the disk."""
    for program in ("qemu-system-x86_64", "busybox", "mke2fs", "dpkg-deb", "/usr/sbin/sshd"):
        if shutil.which(program) is None:
            pytest.skip(f"not installed: {program}; make packages installs it")
    kernel = debian_kernel()
    if kernel is None:
        pytest.skip(f"the Debian package {PACKAGE} cannot be downloaded")
    folder = tmp_path_factory.mktemp("qemu")
    _make_ram_disk(folder, kernel)
    _make_disk(folder, small_root)
    files = {"kernel": next(kernel.glob("boot/vmlinuz-*")), "initrd": folder / "initrd", "disk": folder / "disk.img"}
    return {name: str(path) for name, path in files.items()}


def _make_ram_disk(folder: Path, kernel: Path) -> None:
    tree = folder / "ram"
    (tree / "modules").mkdir(parents=True)
    (tree / "bin").mkdir()
    shutil.copy(str(shutil.which("busybox")), tree / "bin" / "busybox")
    modules = {path.stem.replace("-", "_"): path for path in kernel.rglob("*.ko")}
    needed: dict[str, None] = {}
    for name in MODULES:
        _add_module(needed, name, modules)
    for name in needed:
        shutil.copy(modules[name], tree / "modules" / f"{name}.ko")
    (tree / "init").write_text(INIT.replace("MODULES", " ".join(needed)))
    (tree / "init").chmod(0o755)
    with (folder / "initrd").open("wb") as initrd:
        subprocess.run("find . | busybox cpio -o -H newc", shell=True, cwd=tree, stdout=initrd, check=True)


def _add_module(needed: dict[str, None], name: str, modules: Mapping[str, Path]) -> None:
    """Add a module behind those that it depends on. One without a file is part of the kernel itself."""
    if name in modules and name not in needed:
        match = DEPENDS.search(modules[name].read_bytes())
        for other in match[1].decode().split(",") if match is not None else ():
            _add_module(needed, other.replace("-", "_"), modules)
        needed[name] = None


def _make_disk(folder: Path, root: Path) -> None:
    tree = folder / "root"
    shutil.copytree(root, tree, symlinks=True)
    key = tree / "etc" / "ssh" / "ssh_host_ed25519_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (tree / "etc" / "shadow").write_text("root:*:1::::::\n")
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(folder / "disk.img"), "64M"], check=True)


@pytest.fixture
async def group(image: Mapping[str, str], tmp_path: Path) -> AsyncIterator[InProcess]:
    group = InProcess(LocalGroup())
    qemu: dict[str, Any] = {**image, "disk_format": "raw", "restrict": True}
    qemu["append"] = "console=ttyS0 quiet net.ifnames=0 mitigations=off panic=-1"
    qemu["arguments"] = ["-no-reboot"]
    await group.init({"kind": "qemu", "folder": str(tmp_path / "g"), "memory": "256m", "qemu": qemu}, Settings())
    yield group
    await group.decrease(list(await group.update()))
    await group.shutdown()
    assert os.listdir(tmp_path / "g" / "machines") == []


async def test_virtual_machine_boots_and_is_removed(group: InProcess, image: Mapping[str, str], tmp_path: Path) -> None:
    before = Path(image["disk"]).stat().st_mtime_ns
    assert await group.increase(1) == 1
    [name] = await wait_for_states(group, lambda states: InstanceState.CREATING not in states.values(), BOOT_SECONDS)
    console = "".join(path.read_text()[-3000:] for path in (tmp_path / "g" / "machines").glob("*/console"))
    state = (await group.update()).get(name)
    assert state is InstanceState.RUNNING, console
    await group.heartbeat(name)
    info = await group.connect_info(name)
    assert info.address().startswith("127.0.0.1:")
    output = await run_on_machine(group, name, "hostname; touch /root/mine && ls -d /root/mine; cat /proc/version")
    assert output.splitlines()[:2] == [name, "/root/mine"]
    assert "cloud-amd64" in output
    assert await group.decrease([name]) == [name]
    await wait_for_states(group, lambda states: not states)
    assert Path(image["disk"]).stat().st_mtime_ns == before
