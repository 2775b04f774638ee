"""Many jobs run while the cell, two managers, their agents, forked standard steps and the database are killed.

There is one test with a cell on SQLite, and one with two processes of a cell on PostgreSQL. Every one to three seconds
something is killed (SIGKILL) and started again. Each job appends its id to a file outside of its working directory,
prints a known text slowly enough to be killed meanwhile, and uploads an artifact. Every job ends, no job is started
twice, and every log is correct to the byte. A job may fail only if one of its forked standard steps (its upload) was
killed. What is killed when is random, from a seed.

`CHAOS_JOBS` is the number of jobs: 300 for the full run, `make system` uses fewer. The figures are appended to the file
that `CHAOS_FIGURES` names.
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
"""Jobs at a time of each of the two managers."""
LINES = 20
SECONDS = 600 + 4 * JOBS
"""Time limit for a busy machine; normally the test takes a fraction of it."""
SEED = 11
PRINT = (
    f'i=0; while [ $i -lt {LINES} ]; do echo "$CI_NODE_INDEX:$i of $CI_JOB_NAME"; i=$((i+1)); '
    "[ $((i % 10)) -ne 0 ] || sleep 2; done"
)
LAST = "echo left > left-$CI_JOB_ID; printf 'no line feed at the end'"
_ACCEPTED = re.compile(r'"id": ?"(\d+)-')
"""Matches the id of a job in the agent's journal."""


class Chaos:
    """Two labs that share a cell, and threads that kill and restart their parts."""

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
        self.kills: Counter[str] = Counter()
        self.jobs_with_killed_steps: set[int] = set()
        """Ids of jobs of which a forked standard step was killed."""
        self._stop = threading.Event()

    def start(self) -> None:
        self.first.start()
        if self.database:
            self.second.start()
        else:
            self._configure_second()
            self.second.manager.start()

    def _configure_second(self) -> None:
        runner = self.first.call("POST", "/api/v4/user/runners", {"runner_type": "instance_type"})
        text = self.first.config.read_text().replace(str(self.first.folder), str(self.second.folder))
        lines = [f'token = "{runner["token"]}"' if line.startswith("token =") else line for line in text.splitlines()]
        self.second.config.write_text("\n".join(lines) + "\n")
        self.second.config.chmod(0o600)

    def close(self) -> None:
        for lab in self.labs:
            lab.close()

    def create(self) -> Project:
        project = connect(self.first).projects.create({"name": "many"})
        # `parallel` of a job is at most 200.
        sizes = [min(150, JOBS - start) for start in range(0, JOBS, 150)]
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
        """While the block runs, kill something every one to three seconds and start it again."""
        threads = [
            threading.Thread(target=self._kill_parts, name="killer"),
            threading.Thread(target=self._restart_parts, name="supervisor"),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _restart_parts(self) -> None:
        while not self._stop.wait(0.1):
            for part in self.parts:
                part.start()
        for part in self.parts:
            part.start()

    def _kill_parts(self) -> None:
        rng = random.Random(SEED)
        kinds: dict[str, Callable[[], int]] = {
            "cell": lambda: self._kill_cell(rng.choice(self.labs[: len(self.cells)])),
            "manager": lambda: self._kill_part(rng.choice(self.labs).manager),
            "agent": lambda: _kill(rng.choice(self.labs).agent_pids()),
            "forked": lambda: self._kill_forked(rng, rng.choice(self.labs)),
        }
        if self.database:
            kinds["database"] = self._kill_database
        while not self._stop.wait(rng.uniform(1, 3)):
            kind = rng.choice(list(kinds))
            self.kills[kind] += kinds[kind]()

    def _kill_forked(self, rng: random.Random, lab: Lab) -> int:
        pids = lab.standby_pids()
        if not pids:
            return 0
        pid = rng.choice(pids)
        with contextlib.suppress(OSError):
            # Stop it first, so that it cannot end its step or begin another before it is killed.
            os.kill(pid, signal.SIGSTOP)
            while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZX":
                time.sleep(0.001)
        self.jobs_with_killed_steps |= _jobs_of_process(pid, lab)
        return _kill([pid])

    def _kill_cell(self, lab: Lab) -> int:
        """Kill the cell only if it is healthy; otherwise it would never become healthy on a slow machine."""
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
        """Wait until the pipeline has ended; failed requests are repeated."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(gitlab.GitlabError, OSError):
                if any(pipeline.status in OVER for pipeline in project.pipelines.list(get_all=False)):
                    return
            time.sleep(0.3)
        raise LabError(f"not over after {SECONDS} s\n{self.first.cell.tail()}\n{self.first.manager.tail()}")

    def check(self, project: Project) -> dict[str, object]:
        """Check all jobs. Returns the figures."""
        jobs = first_pipeline(self.first, project).jobs.list(get_all=True, include_retried=True)
        started = Counter(self.starts.read_text().split())
        failed = [job for job in jobs if job.status != "success"]
        wrong = [job.name for job in jobs if self._output(project, job) != self._expected(job.name)]
        figures: dict[str, object] = {
            "jobs": len(jobs),
            "killed": dict(self.kills),
            "failed for a killed upload": len(failed),
            "started twice": sum(count > 1 for count in started.values()),
            "lost": len({str(job.id) for job in jobs} - set(started)),
            "logs with wrong bytes": len(wrong),
        }
        assert figures["started twice"] == figures["lost"] == figures["logs with wrong bytes"] == 0, (figures, wrong)
        assert len(jobs) == JOBS
        unexplained = [job for job in failed if job.id not in self.jobs_with_killed_steps]
        assert not unexplained, (figures, self.jobs_with_killed_steps, self._why(project, unexplained))
        return figures

    @staticmethod
    def _output(project: Project, job: ProjectPipelineJob) -> bytes:
        return script_output(trace_of(project, job.id))

    def _expected(self, name: str) -> bytes:
        index = name.split()[-1].split("/")[0]
        echoes = [f"\x1b[32;1m$ {command}\x1b[0;m\n" for command in self.script]
        lines = "".join(f"{index}:{i} of {name}\n" for i in range(LINES))
        return f"{echoes[0]}{echoes[1]}{lines}{echoes[2]}no line feed at the end\n".encode()

    @staticmethod
    def _why(project: Project, failed: list[ProjectPipelineJob]) -> list[tuple[str, str, bytes]]:
        return [(job.name, job.failure_reason, trace_of(project, job.id)[-600:]) for job in failed[:5]]


def _jobs_of_process(pid: int, lab: Lab) -> set[int]:
    """Ids of jobs of which this process runs a step: the step's pid file has its pid, and no exit status yet."""
    job_ids: set[int] = set()
    for pid_file in lab.folder.glob("manager.jobs/agent/jobs/*/step-*.pid"):
        with contextlib.suppress(OSError):
            lines = pid_file.read_text().splitlines()
            if len(lines) == 1 and lines[0].split()[0] == str(pid):
                job_ids.update(map(int, _ACCEPTED.findall((pid_file.parent / "events").read_text())[:1]))
    return job_ids


def _kill(pids: list[int]) -> int:
    count = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def run_chaos(folder: Path, database: PostgresServer | None, url: str) -> None:
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
    assert sum(chaos.kills.values()) > 5
    assert chaos.kills["cell"] > 0


@pytest.mark.timeout(SECONDS + 120)
def test_jobs_on_sqlite_while_everything_is_killed(tmp_path: Path) -> None:
    run_chaos(tmp_path / "chaos", None, "")


@pytest.mark.timeout(SECONDS + 120)
def test_jobs_on_postgresql_with_two_processes_while_everything_is_killed(tmp_path: Path) -> None:
    if not PostgresServer.is_installed():
        pytest.skip("PostgreSQL is not installed")
    with PostgresServer() as server, server.database() as url:
        run_chaos(tmp_path / "chaos", server, url)
