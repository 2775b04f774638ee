import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.servers.http_server import PlainHandler, run_http_server

from remuda.steps.policy.host_abilities import Host, find_host
from remuda.steps.policy.job_user import JobUser
from remuda.steps.policy.step_limits import Enclosure, enclose
from remuda.steps.process.cgroups import StepGroup
from remuda.steps.process.limits import Limits
from remuda.testing.waiting import wait_until

NOT_ROOT = "needs root"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """The abilities of this machine. Its cgroups are removed after the test."""
    host_abilities = find_host(tmp_path / "agent")
    yield host_abilities
    for folder in host_abilities.groups.folders():
        for step in folder.glob("*/cgroup.procs"):
            # A process that ends closes its pipes a moment before it leaves its group.
            wait_until(StepGroup(groups=host_abilities.groups, key=step.parent.name).remove)
        if folder.exists():
            folder.rmdir()


@pytest.fixture
def person() -> JobUser:
    """A user that is not in the list of users."""
    if os.geteuid() != 0:
        pytest.skip(NOT_ROOT)
    return JobUser(uid=123456, gid=123456)


Run = Callable[..., tuple[subprocess.CompletedProcess[str], Enclosure]]


@pytest.fixture
def run(host: Host, tmp_path: Path) -> Iterator[Run]:
    """Run a script within limits, as the shim does. Returns the finished process and its enclosure."""
    enclosures: list[Enclosure] = []

    def run_script(
        script: str, *, env: dict[str, str] | None = None, limits: Limits | None = None, person: JobUser | None = None
    ) -> tuple[subprocess.CompletedProcess[str], Enclosure]:
        enclosure = enclose(host, limits or Limits(), key=f"job.{len(enclosures)}", work_dir=tmp_path, person=person)
        enclosures.append(enclosure)
        variables = {"PATH": os.environ["PATH"]} | (env or {})
        command, wrapped_env = enclosure.wrap(["sh", "-c", script], variables, tmp_path / "env")
        join_and_exec = 'for f in $JOINS; do echo 0 >"$f" || exit 99; done; exec "$@"'
        process = subprocess.run(
            ["sh", "-c", join_and_exec, "sh", *command],
            env=wrapped_env | {"JOINS": " ".join(enclosure.joins)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return process, enclosure

    yield run_script
    for enclosure in enclosures:
        if enclosure.group is not None:
            enclosure.group.kill()
        enclosure.remove()


@pytest.fixture
def web() -> Iterator[int]:
    """The port of an HTTP server on this machine."""

    class Hello(PlainHandler):
        def respond(self) -> None:
            self.answer(200, b"hello")

    with run_http_server(Hello) as server:
        yield server.server_port


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can enter; pytest's own folders are closed to them."""
    with tempfile.TemporaryDirectory(prefix="remuda-test-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
