"""Fresh systems for tests of installing: a Debian 12 and an Ubuntu 24.04, made by debootstrap, with a container engine.

`run` executes a script as root in a copy of such a system: an overlay, with namespaces of its own for mounts and
processes. Functions in it stand in for what such a machine lacks: `sudo`, and systemd's `journalctl`. The network is
this machine's, because scripts fetch packages; the engine has one of its own.
"""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers.docker_engine import busybox_files

KEYRING = Path(__file__).parent / "ubuntu-archive-keyring.gpg"
"""Keys that sign Ubuntu's packages, from the Debian package ubuntu-keyring."""
SYSTEMCTL = Path(__file__).parents[1] / "page_machine" / "systemctl"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PACKAGES = "ca-certificates,git,iproute2,python3"
"""What a server has, git included: every way of installing says that it needs git."""
ENTER = """
set -eu
machine=$1
mount --make-rprivate /
mount -t overlay overlay -o lowerdir=$2,upperdir=$machine/upper,workdir=$machine/work $machine/root
mount -t proc proc $machine/root/proc
mount --rbind /dev $machine/root/dev
mount --rbind /sys $machine/root/sys
mount --bind $3 $machine/root/files
mount --bind $machine/engine $machine/root/var/lib/docker
cd $machine/root
# Not chroot: what the engine executes in a container would be in the root folder of this machine.
pivot_root . .
umount -l .
exec bash /script
"""
BEGIN = """
set -eux
sudo() { "$@"; }
journalctl() { cat /run/page/tmp/$2.journal; }
start_engine() {
    unshare --net sh -c 'ip link set lo up; exec dockerd' > /var/log/dockerd.log 2>&1 &
    until docker info > /dev/null 2>&1; do
        kill -0 $! || { cat /var/log/dockerd.log >&2; exit 1; }
        sleep 0.2
    done
    docker import /busybox.tar busybox
}
mkdir -p /root/files /run/page/tmp
cp -r /files/. /root/files
cd /root/files
"""
ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "USER": "root",
}


@dataclass(frozen=True, kw_only=True)
class FreshSystem:
    root: Path
    """Its files. A copy is a layer above them."""
    suite: str

    def run(self, files: Path, script: str) -> str:
        """Run a script as root in a fresh copy, in a folder with copies of `files`. Return what it printed."""
        with tempfile.TemporaryDirectory(prefix="machine-", dir=self.root.parent) as name:
            machine = Path(name)
            for part in ("upper", "work", "root", "engine"):
                (machine / part).mkdir()
            (machine / "upper/script").write_text(f"{BEGIN}{script}")
            (machine / "upper/busybox.tar").write_bytes(busybox_files())
            shutil.copy(SYSTEMCTL, machine / "upper/systemctl")
            # How this machine reaches the package index, too.
            settings = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
            settings |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
            settings.pop("PIP_FIND_LINKS", None)
            command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER, "enter"]
            done = subprocess.run(
                [*command, str(machine), str(self.root), str(files)],
                env={**settings, **ENVIRONMENT},
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            assert done.returncode == 0, f"{done.stdout[-3000:]}\n---- stderr\n{done.stderr[-5000:]}"
            return done.stdout


def make_debian(folder: Path) -> FreshSystem:
    return _make(folder, "bookworm")


def make_ubuntu(folder: Path) -> FreshSystem:
    # Debian 12 has no script for this release; those of all releases of Ubuntu are the same one.
    script = "/usr/share/debootstrap/scripts/gutsy"
    return _make(folder, "noble", "--components=main,universe", f"--keyring={KEYRING}", script=script)


def _make(folder: Path, suite: str, *options: str, script: str = "") -> FreshSystem:
    system = FreshSystem(root=folder / suite, suite=suite)
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", *options, suite, str(system.root)]
    done = subprocess.run([*command, "", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    for name in ("files", "var/lib/docker"):
        (system.root / name).mkdir()
    for path in (CERTIFICATES, Path("/etc/resolv.conf")):
        if path.exists():
            target = system.root / path.relative_to("/")
            target.unlink(missing_ok=True)
            shutil.copy(path, target)
    (system.root / "etc/apt/apt.conf.d/50test").write_text('APT::Get::Assume-Yes "true";\n')
    # No service starts by itself, as in a container: an engine would change the network of this machine.
    policy = system.root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    return system


def install(system: FreshSystem, script: str) -> None:
    """Execute commands in the system itself, so that all later copies have what they install."""
    environment = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")} | ENVIRONMENT
    commands = f'mount -t proc proc /proc\nsudo() {{ "$@"; }}\napt-get update\n{script}'
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "chroot",
        str(system.root),
        "bash",
        "-euc",
        commands,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n---- stderr\n{done.stderr[-3000:]}"
