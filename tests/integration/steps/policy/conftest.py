import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.servers.http_server import PlainHandler, serving_http

from remuda.steps.policy.host_abilities import Host, find_host
from remuda.steps.policy.job_user import JobUser
from remuda.steps.policy.step_limits import Enclosure, enclose
from remuda.steps.process.limits import Limits

NOT_ROOT = "needs root"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """This machine; nothing is left of its groups."""
    found = find_host(tmp_path / "agent")
    yield found
    for folder in found.groups.folders():
        for step in folder.glob("*/cgroup.procs"):
            step.parent.rmdir()
        if folder.exists():
            folder.rmdir()


@pytest.fixture
def person() -> JobUser:
    """Whom no list of users has."""
    if os.geteuid() != 0:
        pytest.skip(NOT_ROOT)
    return JobUser(uid=123456, gid=123456)


Run = Callable[..., tuple[subprocess.CompletedProcess[str], Enclosure]]


@pytest.fixture
def run(host: Host, tmp_path: Path) -> Iterator[Run]:
    """Run a script within limits, as the shim would; its end, and the enclosure to ask."""
    made: list[Enclosure] = []

    def start(
        script: str, *, env: dict[str, str] | None = None, limits: Limits | None = None, person: JobUser | None = None
    ) -> tuple[subprocess.CompletedProcess[str], Enclosure]:
        enclosure = enclose(host, limits or Limits(), key=f"job.{len(made)}", work_dir=tmp_path, person=person)
        made.append(enclosure)
        variables = {"PATH": os.environ["PATH"]} | (env or {})
        command, given = enclosure.wrap(["sh", "-c", script], variables, tmp_path / "env")
        joined = 'for f in $JOINS; do echo 0 >"$f" || exit 99; done; exec "$@"'
        ended = subprocess.run(
            ["sh", "-c", joined, "sh", *command],
            env=given | {"JOINS": " ".join(enclosure.joins)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ended, enclosure

    yield start
    for enclosure in made:
        if enclosure.group is not None:
            enclosure.group.kill()
        enclosure.remove()


@pytest.fixture
def web() -> Iterator[int]:
    """The port of a server on this machine."""

    class Hello(PlainHandler):
        def respond(self) -> None:
            self.answer(200, b"hello")

    with serving_http(Hello) as server:
        yield server.server_port
