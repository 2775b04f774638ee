"""Many jobs while everything dies: the cell, two managers, their agents, what agents have forked, and the database.

Once with a cell on SQLite, and once with two processes of a cell over PostgreSQL. Something gets kill -9 every one to
three seconds and is started again. Each job writes a line into a file outside with its id, prints a known text slowly
enough to be killed under, and leaves an artifact. All of them end, none is started twice, and every log is what the
script printed, byte for byte. A job may fail only if a forked standard step of its own (its upload) was killed. What is
killed when is random, from a seed.

`CHAOS_JOBS` is how many jobs there are: 300 is the whole run, `make system` has a shorter one. The figures stand
in the file that `CHAOS_FIGURES` names.
"""

import contextlib
import json
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import gitlab
import pytest
from gitlab.v4.objects import Project, ProjectPipelineJob
from tests.support.servers.postgres_server import PostgresServer

from remuda.testing.client import OVER, connect, first_pipeline, script_output, trace_of
from remuda.testing.lab import Lab, LabError

JOBS = int(os.environ.get("CHAOS_JOBS", "100"))
AT_ONCE = 8
"""For each of the two managers."""
LINES = 20
SECONDS = 600 + 4 * JOBS
"""What it may take on a machine that has much else to do; it takes a fraction of that."""
SEED = 11
PRINT = (
    f'i=0; while [ $i -lt {LINES} ]; do echo "$CI_NODE_INDEX:$i of $CI_JOB_NAME"; i=$((i+1)); '
    "[ $((i % 10)) -ne 0 ] || sleep 2; done"
)
LAST = "echo left > left-$CI_JOB_ID; printf 'no line feed at the end'"
_ACCEPTED = re.compile(r'"id": ?"(\d+)-')
"""The id of a job in the agent's journal."""


class Chaos:
    """Two labs that share a cell, and somebody who kills their parts."""

    def __init__(self, folder: Path, database: PostgresServer | None, url: str) -> None:
        settings = {"REMUDA_LEASE_SECONDS": "15", "REMUDA_LOG_LEVEL": "warning"}
        settings |= {"REMUDA_DATABASE": url} if url else {}
        folder.mkdir(exist_ok=True)
        self.first = Lab(folder / "one", concurrent=AT_ONCE, settings=settings)
        self.second = Lab(folder / "two", concurrent=AT_ONCE, settings=settings)
        if database is None:
            self.second.port = self.first.port
        self.second.cell.command = [
            str(self.first.folder / "cell") if word == str(self.second.folder / "cell") else word
            for word in self.second.cell.command
        ]
        self.database = database
        self.labs = (self.first, self.second)
        self.cells = [lab.cell for lab in (self.labs if database else self.labs[:1])]
        self.parts = [*self.cells, *(lab.manager for lab in self.labs)]
        self.starts = folder / "starts"
        self.script = [f'echo "$CI_JOB_ID" >> {self.starts}', PRINT, LAST]
        self.died: Counter[str] = Counter()
        self.robbed: set[int] = set()
        """The jobs that lost a forked step."""
        self._over = threading.Event()

    def start(self) -> None:
        self.first.start()
        if self.database:
            self.second.start()
        else:
            self._configure_second()
            self.second.manager.start()

    def _configure_second(self) -> None:
        made = self.first.call("POST", "/api/v4/user/runners", {"runner_type": "instance_type"})
        text = self.first.config.read_text().replace(str(self.first.folder), str(self.second.folder))
        lines = [f'token = "{made["token"]}"' if line.startswith("token =") else line for line in text.splitlines()]
        self.second.config.write_text("\n".join(lines) + "\n")
        self.second.config.chmod(0o600)

    def close(self) -> None:
        for lab in self.labs:
            lab.close()

    def create(self) -> Project:
        project = connect(self.first).projects.create({"name": "many"})
        # A pipeline's `parallel` goes to 200.
        sizes = [min(150, JOBS - at) for at in range(0, JOBS, 150)]
        pipeline = {
            f"group {number}": {
                "parallel": size,
                "variables": {"GIT_STRATEGY": "none"},
                "script": self.script,
                "artifacts": {"paths": ["left-*"]},
            }
            for number, size in enumerate(sizes)
        }
        action = {"action": "create", "file_path": ".gitlab-ci.yml", "content": json.dumps(pipeline)}
        project.commits.create({"branch": "main", "commit_message": "First commit", "actions": [action]})
        return project

    @contextlib.contextmanager
    def killing(self) -> Iterator[None]:
        """Something dies every one to three seconds while this lasts, and is started again."""
        threads = [
            threading.Thread(target=self._kill_on, name="killer"),
            threading.Thread(target=self._start_again, name="supervisor"),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _start_again(self) -> None:
        while not self._over.wait(0.1):
            for part in self.parts:
                part.start()
        for part in self.parts:
            part.start()

    def _kill_on(self) -> None:
        chance = random.Random(SEED)
        kinds: dict[str, Callable[[], int]] = {
            "cell": lambda: self._kill_cell(chance.choice(self.labs[: len(self.cells)])),
            "manager": lambda: self._kill_part(chance.choice(self.labs).manager),
            "agent": lambda: _kill(chance.choice(self.labs).agent_pids()),
            "forked": lambda: self._kill_forked(chance, chance.choice(self.labs)),
        }
        if self.database:
            kinds["database"] = self._kill_database
        while not self._over.wait(chance.uniform(1, 3)):
            kind = chance.choice(list(kinds))
            self.died[kind] += kinds[kind]()

    def _kill_forked(self, chance: random.Random, lab: Lab) -> int:
        pids = lab.standby_pids()
        if not pids:
            return 0
        pid = chance.choice(pids)
        with contextlib.suppress(OSError):
            # Stopped first: it must not end its step, or begin another, between the look and the kill.
            os.kill(pid, signal.SIGSTOP)
            while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZX":
                time.sleep(0.001)
        self.robbed |= _jobs_led_by(pid, lab)
        return _kill([pid])

    def _kill_cell(self, lab: Lab) -> int:
        """One that serves: on a slow machine it would never come to that otherwise."""
        return self._kill_part(lab.cell) if lab.is_healthy() else 0

    def _kill_part(self, part: object) -> int:
        process = getattr(part, "process", None)
        return _kill([process.pid]) if process is not None and process.poll() is None else 0

    def _kill_database(self) -> int:
        assert self.database is not None
        self.database.kill()
        self.database.start()
        return 1

    def wait(self, project: Project) -> None:
        """Until the pipeline is over, however often nobody answers."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(gitlab.GitlabError, OSError):
                if any(pipeline.status in OVER for pipeline in project.pipelines.list(get_all=False)):
                    return
            time.sleep(0.3)
        raise LabError(f"not over after {SECONDS} s\n{self.first.cell.tail()}\n{self.first.manager.tail()}")

    def check(self, project: Project) -> dict[str, object]:
        """All of it; the figures."""
        jobs = first_pipeline(self.first, project).jobs.list(get_all=True, include_retried=True)
        started = Counter(self.starts.read_text().split())
        failed = [job for job in jobs if job.status != "success"]
        wrong = [job.name for job in jobs if self._output(project, job) != self._expected(job.name)]
        figures: dict[str, object] = {
            "jobs": len(jobs),
            "killed": dict(self.died),
            "failed for a killed upload": len(failed),
            "started twice": sum(count > 1 for count in started.values()),
            "lost": len({str(job.id) for job in jobs} - set(started)),
            "logs with wrong bytes": len(wrong),
        }
        assert figures["started twice"] == figures["lost"] == figures["logs with wrong bytes"] == 0, (figures, wrong)
        assert len(jobs) == JOBS
        lost_nothing = [job for job in failed if job.id not in self.robbed]
        assert not lost_nothing, (figures, self.robbed, self._why(project, lost_nothing))
        return figures

    @staticmethod
    def _output(project: Project, job: ProjectPipelineJob) -> bytes:
        return script_output(trace_of(project, job.id))

    def _expected(self, name: str) -> bytes:
        index = name.split()[-1].split("/")[0]
        said = [f"\x1b[32;1m$ {command}\x1b[0;m\n" for command in self.script]
        lines = "".join(f"{index}:{i} of {name}\n" for i in range(LINES))
        return f"{said[0]}{said[1]}{lines}{said[2]}no line feed at the end\n".encode()

    @staticmethod
    def _why(project: Project, failed: list[ProjectPipelineJob]) -> list[tuple[str, str, bytes]]:
        return [(job.name, job.failure_reason, trace_of(project, job.id)[-600:]) for job in failed[:5]]


def _jobs_led_by(pid: int, lab: Lab) -> set[int]:
    """The jobs of which this process runs a step: it has claimed it by a file, and not noted there how it ended."""
    found: set[int] = set()
    for claim in lab.folder.glob("manager.jobs/agent/jobs/*/step-*.pid"):
        with contextlib.suppress(OSError):
            lines = claim.read_text().splitlines()
            if len(lines) == 1 and lines[0].split()[0] == str(pid):
                found.update(map(int, _ACCEPTED.findall((claim.parent / "events").read_text())[:1]))
    return found


def _kill(pids: list[int]) -> int:
    count = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def run(folder: Path, database: PostgresServer | None, url: str) -> None:
    chaos = Chaos(folder, database, url)
    try:
        chaos.start()
        project = chaos.create()
        began = time.monotonic()
        with chaos.killing():
            chaos.wait(project)
        took = time.monotonic() - began
        chaos.first.wait_until(chaos.first.is_healthy, "the cell serves")
        figures = chaos.check(project) | {"seconds": round(took)}
    finally:
        chaos.close()
    if report := os.environ.get("CHAOS_FIGURES"):
        with Path(report).open("a") as file:
            file.write(f"{'postgresql' if database else 'sqlite'}: {json.dumps(figures)}\n")
    assert sum(chaos.died.values()) > 5
    assert chaos.died["cell"] > 0


@pytest.mark.timeout(SECONDS + 120)
def test_jobs_on_sqlite_while_everything_dies(tmp_path: Path) -> None:
    run(tmp_path / "chaos", None, "")


@pytest.mark.timeout(SECONDS + 120)
def test_jobs_on_postgresql_with_two_processes_while_everything_dies(tmp_path: Path) -> None:
    if not PostgresServer.is_there():
        pytest.skip("PostgreSQL is not installed")
    with PostgresServer() as server, server.database() as url:
        run(tmp_path / "chaos", server, url)
