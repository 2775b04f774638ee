"""A real container engine for tests: Debian's dockerd, in a network namespace and folders of its own, gone afterwards.

Its bridges and addresses are in that namespace, so nothing of the machine's network changes and engines do not meet.
Images are made of what this machine has installed, so no registry is needed: `busybox`, and `debian` out of the files
of this machine's own packages. A test may kill the engine and start it again. Only root can run one.
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
_BALLAST = ("/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/info")
_PASSWD = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n"


class DockerEngine:
    """An engine that runs while the `with` block does."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="remuda-dk-"))
        self.namespace = self._folder.name
        """Of its network, as `ip netns` knows it."""
        self._process: subprocess.Popen[bytes] | None = None
        self.host = f"unix://{self._folder}/sock"

    @staticmethod
    def missing() -> str:
        """Why there can be none here; empty where there can."""
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
            self.clear()  # what is paused dies of no signal
        self.kill()
        self._end_containers()
        for place in sorted(self._mounts(), reverse=True):
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def api(self) -> Engine:
        return Engine(self.host)

    def start(self) -> None:
        """Start it (again); returns when it answers."""
        (self._folder / "pid").unlink(missing_ok=True)
        command = [
            *self.inside,
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
        """SIGKILL to the engine and what belongs to it; containers live on, as they do then."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            self._end_containerd()

    @property
    def inside(self) -> list[str]:
        """What to put before a command that is to be in the engine's network."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}"]

    @property
    def data(self) -> Path:
        """Where it keeps images; made when it starts."""
        return self._folder / "data"

    def add_image(self, name: str, files: bytes, *changes: str) -> None:
        """Make an image of a tar archive; changes are lines of a Dockerfile."""
        changed = [word for one in changes for word in ("--change", one)]
        command = [_client(), "-H", self.host, "import", *changed, "-", name]
        subprocess.run(command, input=files, check=True, capture_output=True)

    def containers(self, **labels: str) -> list[dict[str, Any]]:
        """All with these labels, running or not; a name's dots are written as underscores."""
        wanted = [f"{key.replace('_', '.')}={value}" for key, value in labels.items()]
        found: list[dict[str, Any]] = self.api.call(
            "GET", "/containers/json", query={"all": 1, "filters": {"label": ["remuda.key", *wanted]}}
        )
        return found

    def networks(self) -> list[str]:
        """Names of the networks that belong to jobs."""
        return [one["Name"] for one in self.api.call("GET", "/networks", query={"filters": {"label": ["remuda.key"]}})]

    def clear(self) -> None:
        """Remove every container and network of jobs."""
        for one in self.containers():
            with contextlib.suppress(Exception):
                self.api.call("DELETE", f"/containers/{one['Id']}", query={"force": 1, "v": 1})
        for name in self.networks():
            with contextlib.suppress(Exception):
                self.api.call("DELETE", f"/networks/{name}")

    def living(self) -> list[int]:
        """The first processes of containers of this engine, found without it."""
        shims = {pid for pid, words in processes() if f"{self._folder}/exec/containerd/containerd.sock" in words}
        return [pid for pid, _ in processes() if _parent(pid) in shims]

    def _end_containerd(self) -> None:
        """It dies with the engine; a new one takes the old one for its own while that is not quite dead."""
        number = self._folder / "exec/containerd/containerd.pid"
        until = time.monotonic() + START_SECONDS
        while number.exists() and time.monotonic() < until:
            pid = int(number.read_text() or 0)
            if not any(found == pid and words[0] for found, words in processes()):
                number.unlink()
            time.sleep(0.02)

    def _end_containers(self) -> None:
        for pid in self.living():
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
    """A tar archive: contents by path; a text that begins with -> is a link."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
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
    return made.getvalue()


def busybox_files(**more: str) -> bytes:
    """The files of an image with nothing but busybox, and more by path."""
    program = Path(shutil.which("busybox") or "/bin/busybox")
    names = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split()
    links = {f"bin/{name}": "->busybox" for name in names if name != "busybox"}
    folders = {"tmp/": "", "root/": "", "etc/": ""}
    return archive(
        {**folders, "etc/passwd": _PASSWD, "bin/busybox": program.read_bytes(), **links, **more}, modes={"tmp/": 0o1777}
    )


def debian_files(*packages: str) -> bytes:
    """The files of a small Debian image, out of what this machine has installed, with those of more packages."""
    command = ["dpkg", "-L", *_DEBIAN_PROGRAMS, *_DEBIAN_LIBRARIES, *packages]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {"/bin", "/sbin", "/lib", "/lib64"}
    for path in listed.split("\n"):
        # /bin and others are links into /usr here, and packages name their files by either path.
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if path not in ("", "/.") and not path.startswith(_BALLAST) and os.path.lexists(real):
            found.add(real)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path in sorted(found - {"/etc/passwd"}):
            tar.add(path, path.lstrip("/"), recursive=False)
        info = tarfile.TarInfo("etc/passwd")
        info.size = len(_PASSWD)
        tar.addfile(info, io.BytesIO(_PASSWD.encode()))
    return made.getvalue()


def _client() -> str:
    found = shutil.which("docker")
    assert found is not None, "the docker client is not installed"
    return found


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat[stat.rindex(b")") + 2 :].split()[1])


def names(containers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Of containers, as people know them."""
    return sorted(one["Names"][0].lstrip("/") for one in containers)
