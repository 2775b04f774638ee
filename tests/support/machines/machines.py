"""Machines in namespaces of this host for tests: each has its own network, processes, disk and host name, and sshd.

A lab is one process, the first of its own mount, network and process namespaces; machines are namespaces inside of it,
connected by one bridge. The lab ends when the thread that started it ends, and everything in it ends with it, whatever
happens to the test. The network, mounts and processes of the host do not change. The disk of a machine survives `kill`
and `start`, until the lab ends.

A machine's disk is an overlay over the root of this host, so it has the programs of the host and is created at once;
/tmp, /run, /root and /home are its own and empty at first. Needs root and Linux.
"""

import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

PROGRAMS = ("ip", "nsenter", "openssl", "setpriv", "ssh", "ssh-keygen", "unshare", "/usr/sbin/sshd")
START_SECONDS = 30.0
USER, PASSWORD = "ci", "not-a-secret"
"""An ordinary user of every machine. Root can log in only with the key."""
LAB_ADDRESS = "10.250.0.1"

_PREFIX = "remuda-machines-"
_CLONE_NEWNET = 0x40000000
_LAB_SCRIPT = """
set -e
mount --make-rprivate /
ip link set lo up
ip link add br0 type bridge
ip addr add "$1/24" dev br0
ip link set br0 up
mkdir -p "$2" /run/netns
mount -t tmpfs -o mode=755 disks "$2"
mount -t tmpfs netns /run/netns
echo ready
exec sleep infinity
"""
# $1 name, $2 address, $3 folder of the lab, $4 shared folder or empty, $5 "docker" if an engine may run there.
_CONNECT_SCRIPT = """
set -e
[ -e "/run/netns/$1" ] || {
    ip netns add "$1"
    ip link add "v$1" type veth peer name eth0 netns "$1"
    ip link set "v$1" master br0 up
    ip -n "$1" addr add "$2/24" dev eth0
    ip -n "$1" link set eth0 up
    ip -n "$1" link set lo up
    ip -n "$1" route add default via "$6"
}
exec nsenter "--net=/run/netns/$1" unshare --mount --pid --uts --ipc --fork --kill-child sh -c "$7" sh "$@"
"""
_BOOT_SCRIPT = """
set -e
mount --make-rprivate /
disk=$3/disks/$1
mkdir -p "$disk/upper" "$disk/work" "$disk/mount" "$disk/root" "$disk/home/ci" "$disk/docker"
mount -t overlay "$1" -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" "$disk/mount"
root=$disk/mount
# Jobs of other managers, if this host is one of their machines.
[ -e "$disk/begun" ] || rm -rf "$root/var/lib/remuda-machine"
: >"$disk/begun"
hostname "$1"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs shm "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
if [ "$5" = docker ]; then mount --rbind /sys "$root/sys"; else mount -t sysfs -o ro sysfs "$root/sys"; fi
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs -o mode=755 run "$root/run"
chmod 700 "$disk/root"
mount --bind "$disk/root" "$root/root"
mount --bind "$disk/home" "$root/home"
if [ "$5" = docker ]; then mkdir -p "$root/var/lib/docker"; mount --bind "$disk/docker" "$root/var/lib/docker"; fi
if [ -n "$4" ]; then mkdir -p "$root$4"; mount --bind "$4" "$root$4"; fi
mkdir -p "$root/run/sshd" "$root/etc/ssh/lab" "$root/root/.ssh" "$root/home/ci/.ssh"
cp "$3/keys/$1" "$3/keys/user.pub" "$3/sshd_config" "$root/etc/ssh/lab/"
mv "$root/etc/ssh/lab/$1" "$root/etc/ssh/lab/host"
chmod 600 "$root/etc/ssh/lab/host"
# There is no name server. Lookups must fail at once instead of waiting.
rm -f "$root/etc/resolv.conf"
echo "nameserver 127.0.0.1" >"$root/etc/resolv.conf"
echo "127.0.0.1 localhost $1" >"$root/etc/hosts"
grep -q '^ci:' "$root/etc/passwd" || cat "$3/passwd" >>"$root/etc/passwd"
chown -R 2000:2000 "$root/home/ci"
cd "$root"
pivot_root . mnt
umount -l /mnt
cd /
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /usr/sbin/sshd -D -e -f /etc/ssh/lab/sshd_config
"""
_SSHD_CONFIG = """
HostKey /etc/ssh/lab/host
AuthorizedKeysFile /etc/ssh/lab/user.pub
PermitRootLogin prohibit-password
PasswordAuthentication yes
UsePAM no
StrictModes no
UseDNS no
PidFile none
MaxStartups 100
Subsystem sftp internal-sftp
"""


class Machine:
    """A machine of a lab. Its name and address depend on `number`."""

    def __init__(self, lab: "Machines", number: int, *, docker: bool) -> None:
        self._lab = lab
        self.name = f"m{number}"
        self.address = f"10.250.0.{10 + number}"
        self._docker = docker
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host_key(self) -> str:
        """Its public host key, as one line."""
        return " ".join((self._lab.folder / "keys" / f"{self.name}.pub").read_text().split()[:2])

    def start(self) -> None:
        """Start or restart it. Use `wait` to wait until it accepts logins."""
        lab = self._lab
        words = [self.name, self.address, str(lab.folder), lab.shared, "docker" if self._docker else ""]
        with (lab.folder / f"{self.name}.log").open("ab") as log:
            command = ["nsenter", f"--target={lab.pid}", "--mount", "--net", "--pid", "sh", "-c", _CONNECT_SCRIPT, "sh"]
            command += [*words, LAB_ADDRESS, _BOOT_SCRIPT]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until sshd answers."""
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            alive = self._process.poll() is None and time.monotonic() < deadline
            assert alive, f"{self.name} does not start: {(self._lab.folder / f'{self.name}.log').read_text()[-2000:]}"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with self._lab.enter_network(), socket.create_connection((self.address, 22), timeout=5) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def kill(self) -> None:
        """Kill all its processes at once, like a power failure. The disk stays."""
        if self._process is None:
            return
        for pid in (self.init, *_children(self._process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def unplug(self) -> None:
        """Disconnect its network silently: packets are lost and connections are not reset."""
        self._link("down")

    def plug(self) -> None:
        """Connect it again, and wait until it answers: the kernel notices the link with a delay."""
        self._link("up")
        self.wait()

    def _link(self, state: str) -> None:
        command = ["nsenter", f"--target={self._lab.pid}", "--net", "ip", "link", "set", f"v{self.name}", state]
        subprocess.run(command, check=True)

    def run(self, line: str, *, user: str = "root", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command line on it over SSH."""
        options = ["-i", str(self._lab.key), "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=5"]
        options += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        command = [*self._lab.network_prefix, "ssh", "-F", "none", *options, f"{user}@{self.address}", line]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert not check or done.returncode == 0, f"{self.name}: `{line}` ended with {done.returncode}: {done.stderr}"
        return done

    def hide_python(self) -> None:
        """Delete all Python programs in PATH, on its own disk only."""
        self.run('for folder in $(echo "$PATH" | tr : " "); do rm -f "$folder"/python*; done')
        assert not self.run("command -v python3", check=False).stdout

    @property
    def init(self) -> int:
        """Pid of its first process, in the namespace of the host."""
        assert self._process is not None
        for outer in _children(self._process.pid):
            for inner in _children(outer):
                return inner
        return self._process.pid

    @property
    def root(self) -> Path:
        """Path of its root folder on the host."""
        return Path(f"/proc/{self.init}/root")

    def pids(self, *words: str) -> list[int]:
        """Pids, in the namespace of the host, of its processes whose command line has all these words."""
        own = _namespace(self.init)
        pids = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and _namespace(int(folder.name)) == own:
                with contextlib.suppress(OSError):
                    line = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    if all(word in line for word in words):
                        pids.append(int(folder.name))
        return pids


class Machines:
    """A lab that runs while the `with` block runs."""

    def __init__(self, count: int, *, shared: Path | None = None, docker: Sequence[int] = ()) -> None:
        """`shared` is a folder that all machines have at the same path; `docker` are the numbers of machines that may
        run a container engine."""
        _remove_old_folders()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self.shared = str(shared or "")
        self.key = self.folder / "keys" / "user"
        """Private key file for root and USER."""
        self.machines = [Machine(self, number, docker=number in docker) for number in range(1, count + 1)]
        self._process: subprocess.Popen[bytes] | None = None
        self.pid = 0

    @staticmethod
    def missing() -> str:
        """Why a lab cannot run here; empty if it can."""
        if os.geteuid() != 0:
            return "only root can run machines of its own"
        absent = [program for program in PROGRAMS if shutil.which(program) is None]
        return f"not installed: {', '.join(absent)}; make packages installs it" if absent else ""

    def __enter__(self) -> Self:
        try:
            self._prepare()
            self._start_lab()
            for machine in self.machines:
                machine.start()
            for machine in self.machines:
                machine.wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            # The kernel kills all processes of a namespace with its first one, and `wait` returns after that.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid or self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        for machine in self.machines:
            machine.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def machine(self, name: str) -> Machine:
        return next(machine for machine in self.machines if machine.name == name)

    @property
    def network_prefix(self) -> list[str]:
        """Prefix that runs a command in the network namespace of the lab."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net"]

    @contextlib.contextmanager
    def enter_network(self) -> Iterator[None]:
        """Move this thread, and processes that it starts, into the lab's network while the block runs. Sockets that are
        created in the block stay in that network."""
        with open("/proc/thread-self/ns/net") as home, open(f"/proc/{self.pid}/ns/net") as lab:
            _set_namespace(lab.fileno())
            try:
                yield
            finally:
                _set_namespace(home.fileno())

    def known_hosts(self, *machines: Machine) -> Path:
        """Write a known_hosts file with the keys of these machines; of all, if none is given."""
        file = self.folder / "known_hosts"
        file.write_text("".join(f"{machine.address} {machine.host_key}\n" for machine in machines or self.machines))
        return file

    def _prepare(self) -> None:
        keys = self.folder / "keys"
        keys.mkdir()
        for name in ("user", *(machine.name for machine in self.machines)):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
        (self.folder / "sshd_config").write_text(_SSHD_CONFIG)
        hashed = subprocess.run(["openssl", "passwd", "-6", PASSWORD], check=True, capture_output=True, text=True)
        (self.folder / "passwd").write_text(f"{USER}:{hashed.stdout.strip()}:2000:2000::/home/ci:/bin/sh\n")
        (self.folder / "disks").mkdir()

    def _start_lab(self) -> None:
        script = shlex.join(["sh", "-c", _LAB_SCRIPT, "sh", LAB_ADDRESS, str(self.folder / "disks")])
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
        command += ["--mount-proc", "sh", "-c", f"exec {script}"]
        with (self.folder / "lab.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, stderr=log)
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            assert stdout.readline() == b"ready\n", (self.folder / "lab.log").read_text()
        self.pid = _children(self._process.pid)[0]


def _set_namespace(descriptor: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _remove_old_folders() -> None:
    """Remove folders of labs whose processes were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).split("-")[0]
        if not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)
