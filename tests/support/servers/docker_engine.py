"""Runs a real container engine for tests: Debian's dockerd, with its own network namespace and folders.

Its bridges and addresses are in that namespace, so the network of the machine does not change and engines do not
collide. Images are made from the programs and packages of this machine (`busybox` and `debian`), so no registry is
needed. A test may kill the engine and start it again. Needs root.
"""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from remuda.stdsteps.engine.docker_api import Engine, EngineGoneError
from remuda.testing.lab import processes

PROGRAMS = ("dockerd", "ip", "nsenter", "busybox")
START_SECONDS = 60.0
BUSYBOX, DEBIAN = "busybox:test", "debian:test"
_DEBIAN_PROGRAMS = ("base-files", "bash", "coreutils", "dash", "findutils", "grep", "sed")
_DEBIAN_LIBRARIES = ("libc6", "libtinfo6", "libacl1", "libattr1", "libselinux1", "libpcre2-8-0", "libgmp10")
DEBIAN_PYTHON = (
    "python3-minimal",
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libexpat1",
    "zlib1g",
    "libffi8",
    "libssl3",
)
"""Packages of the system's Python, for `debian_files`."""
_EXCLUDED = ("/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/info")
_PASSWD = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n"


class DockerEngine:
    """An engine that runs while the `with` block runs."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="remuda-dk-"))
        self.namespace = self._folder.name
        """Name of its network namespace for `ip netns`."""
        self._process: subprocess.Popen[bytes] | None = None
        self.host = f"unix://{self._folder}/sock"

    @staticmethod
    def missing() -> str:
        """Why an engine cannot run here; empty if it can."""
        if os.geteuid() != 0:
            return "only root can run a container engine"
        absent = [program for program in PROGRAMS if shutil.which(program) is None]
        return f"not installed: {', '.join(absent)}; make packages installs it" if absent else ""

    def __enter__(self) -> Self:
        subprocess.run(["ip", "netns", "add", self.namespace], check=True)
        subprocess.run(["ip", "-n", self.namespace, "link", "set", "lo", "up"], check=True)
        self.start()
        self.add_image(BUSYBOX, busybox_files())
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            self.clear()  # signals do not end paused containers
        self.kill()
        self._end_containers()
        for path in sorted(self._mounts(), reverse=True):
            subprocess.run(["umount", "-l", path], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def api(self) -> Engine:
        return Engine(self.host)

    def start(self) -> None:
        """Start or restart dockerd, and wait until it answers."""
        (self._folder / "pid").unlink(missing_ok=True)
        command = [
            *self.network_prefix,
            "dockerd",
            "--data-root",
            f"{self._folder}/data",
            "--exec-root",
            f"{self._folder}/exec",
        ]
        command += ["-H", self.host, "--pidfile", f"{self._folder}/pid", "--shutdown-timeout", "3"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(EngineGoneError):
                self.api.call("GET", "/info")
                return
            time.sleep(0.1)
        raise AssertionError(f"dockerd does not start: {(self._folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """Kill (SIGKILL) dockerd and containerd. Containers continue to run."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            self._end_containerd()

    @property
    def network_prefix(self) -> list[str]:
        """Prefix that runs a command in the network namespace of the engine."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}"]

    @property
    def data(self) -> Path:
        """Data folder of dockerd; exists when it has started."""
        return self._folder / "data"

    def add_image(self, name: str, files: bytes, *changes: str) -> None:
        """Create an image from a tar archive. `changes` are lines of a Dockerfile."""
        options = [word for change in changes for word in ("--change", change)]
        command = [_client(), "-H", self.host, "import", *options, "-", name]
        subprocess.run(command, input=files, check=True, capture_output=True)

    def containers(self, **labels: str) -> list[dict[str, Any]]:
        """Containers with these labels, running or not. In label names, underscores stand for dots."""
        filters = [f"{key.replace('_', '.')}={value}" for key, value in labels.items()]
        containers: list[dict[str, Any]] = self.api.call(
            "GET", "/containers/json", query={"all": 1, "filters": {"label": ["remuda.key", *filters]}}
        )
        return containers

    def networks(self) -> list[str]:
        """Names of the networks that belong to jobs."""
        networks = self.api.call("GET", "/networks", query={"filters": {"label": ["remuda.key"]}})
        return [network["Name"] for network in networks]

    def clear(self) -> None:
        """Remove all containers and networks of jobs."""
        for container in self.containers():
            with contextlib.suppress(Exception):
                self.api.call("DELETE", f"/containers/{container['Id']}", query={"force": 1, "v": 1})
        for name in self.networks():
            with contextlib.suppress(Exception):
                self.api.call("DELETE", f"/networks/{name}")

    def container_pids(self) -> list[int]:
        """Pids of the first processes of its containers, from /proc: works while dockerd is down."""
        shims = {pid for pid, words in processes() if f"{self._folder}/exec/containerd/containerd.sock" in words}
        return [pid for pid, _ in processes() if _parent(pid) in shims]

    def _end_containerd(self) -> None:
        """Wait until containerd, which ends with dockerd, has ended: a new dockerd would use the old one while it is
        still there."""
        pid_file = self._folder / "exec/containerd/containerd.pid"
        until = time.monotonic() + START_SECONDS
        while pid_file.exists() and time.monotonic() < until:
            pid = int(pid_file.read_text() or 0)
            if not any(other == pid and words[0] for other, words in processes()):
                pid_file.unlink()
            time.sleep(0.02)

    def _end_containers(self) -> None:
        for pid in self.container_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid, words in processes():
            if any(word.startswith(str(self._folder)) for word in words):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _mounts(self) -> list[str]:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return [line.split()[1] for line in lines if line.split()[1].startswith(f"{self._folder}/")]


def archive(files: Mapping[str, bytes | str], *, modes: Mapping[str, int] | None = None) -> bytes:
    """A tar archive of contents by path. A text that begins with -> makes a symbolic link, a path that ends with / a
    folder."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str) and content.startswith("->"):
                info.type, info.linkname = tarfile.SYMTYPE, content[2:]
                tar.addfile(info)
                continue
            data = content.encode() if isinstance(content, str) else content
            info.size, info.mode = len(data), (modes or {}).get(name, 0o755)
            if name.endswith("/"):
                info.type, info.size = tarfile.DIRTYPE, 0
            tar.addfile(info, io.BytesIO(data))
    return output.getvalue()


def busybox_files(**more: str) -> bytes:
    """Tar archive of an image with busybox only, and with the files `more` by path."""
    program = Path(shutil.which("busybox") or "/bin/busybox")
    names = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split()
    links = {f"bin/{name}": "->busybox" for name in names if name != "busybox"}
    folders = {"tmp/": "", "root/": "", "etc/": ""}
    return archive(
        {**folders, "etc/passwd": _PASSWD, "bin/busybox": program.read_bytes(), **links, **more}, modes={"tmp/": 0o1777}
    )


def debian_files(*packages: str) -> bytes:
    """Tar archive of a small Debian image, made from installed packages; `packages` are added."""
    command = ["dpkg", "-L", *_DEBIAN_PROGRAMS, *_DEBIAN_LIBRARIES, *packages]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    paths = {"/bin", "/sbin", "/lib", "/lib64"}
    for path in listed.split("\n"):
        # /bin and others are links into /usr, and packages use either path.
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if path not in ("", "/.") and not path.startswith(_EXCLUDED) and os.path.lexists(real):
            paths.add(real)
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as tar:
        for path in sorted(paths - {"/etc/passwd"}):
            tar.add(path, path.lstrip("/"), recursive=False)
        info = tarfile.TarInfo("etc/passwd")
        info.size = len(_PASSWD)
        tar.addfile(info, io.BytesIO(_PASSWD.encode()))
    return output.getvalue()


def _client() -> str:
    program = shutil.which("docker")
    assert program is not None, "the docker client is not installed"
    return program


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat[stat.rindex(b")") + 2 :].split()[1])


def names(containers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of containers, sorted."""
    return sorted(container["Names"][0].lstrip("/") for container in containers)
