"""Runs a real Podman for tests, as root: its API service, with its own network namespace and folders. It needs no
registry: `busybox` is made from this machine's program."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tests.support.servers.docker_engine import BUSYBOX, busybox_files

from remuda.stdsteps.engine.docker_api import Engine, EngineGoneError

PROGRAMS = ("podman", "runc", "ip", "nsenter", "busybox")
START_SECONDS = 60.0
SETTINGS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""
"""For machines with cgroups v1, and without the right to raise limits."""


class PodmanEngine:
    """A service that runs while the `with` block runs. `runtime_dir` is the user's folder of sockets."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="remuda-pm-"))
        self.namespace = self._folder.name
        self.runtime_dir = self._folder / "run"
        self.host = f"unix://{self.runtime_dir}/podman/podman.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> str:
        """Why Podman cannot run here; empty if it can."""
        if os.geteuid() != 0:
            return "only root can run a container engine"
        absent = [program for program in PROGRAMS if shutil.which(program) is None]
        return f"not installed: {', '.join(absent)}; make packages installs it" if absent else ""

    @property
    def api(self) -> Engine:
        return Engine(self.host)

    def containers(self) -> list[Any]:
        """Containers of jobs, running or not."""
        answer: list[Any] = self.api.call(
            "GET", "/containers/json", query={"all": 1, "filters": {"label": ["remuda.key"]}}
        )
        return answer

    def __enter__(self) -> Self:
        subprocess.run(["ip", "netns", "add", self.namespace], check=True)
        subprocess.run(["ip", "-n", self.namespace, "link", "set", "lo", "up"], check=True)
        (self.runtime_dir / "podman").mkdir(parents=True)
        (self._folder / "containers.conf").write_text(SETTINGS)
        imported = self._command("import", "-", f"localhost/{BUSYBOX}")
        subprocess.run(imported, input=busybox_files(), env=self._env, check=True, capture_output=True)
        with (self._folder / "log").open("ab") as log:
            service = self._command("system", "service", "--time", "0", self.host)
            self._process = subprocess.Popen(service, env=self._env, stdout=log, stderr=log)
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(EngineGoneError):
                self.api.call("GET", "/info")
                return self
            time.sleep(0.1)
        self.__exit__()
        raise AssertionError("the service of Podman does not start")

    def __exit__(self, *_: object) -> None:
        subprocess.run(self._command("rm", "--all", "--force"), env=self._env, check=False, capture_output=True)
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        for path in sorted(self._mounts(), reverse=True):
            subprocess.run(["umount", "-l", path], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _env(self) -> dict[str, str]:
        return {
            **os.environ,
            "CONTAINERS_CONF": f"{self._folder}/containers.conf",
            "XDG_RUNTIME_DIR": str(self._folder),
        }

    def _command(self, *words: str) -> list[str]:
        places = ["--root", f"{self._folder}/root", "--runroot", f"{self._folder}/runroot"]
        return ["nsenter", f"--net=/run/netns/{self.namespace}", "podman", *places, *words]

    def _mounts(self) -> list[str]:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return [line.split()[1] for line in lines if line.split()[1].startswith(f"{self._folder}/")]
