"""Two hundred jobs run on autoscaled machines while plugin, manager and machines are killed.

The cell, the manager, the plugin `local` and its machines, which are reached by SSH, are real processes. Every few
seconds the test kills (SIGKILL) the manager, which it starts again, its plugin, a machine with everything that runs on
it, or manager and machine. Each job reports its start to this test, which records it before the job continues, and
then prints a known text slowly enough to be killed meanwhile.

Expected: a job whose machine was not killed succeeds, and the log of every successful job is correct to the byte. A job
whose machine was killed fails with `runner_system_failure`, and its log names that machine. If the machine's agent had
not received the job yet, the cell hands the job out again. If it had, the script may have begun, so the job is repeated
only if it has `retry`. So no script without `retry` runs twice. At the end there are no machines, no orphans, and no
leftovers of the group on this host. What is killed when is random, from a seed; REMUDA_SEED sets another one.
"""

import asyncio
import contextlib
import io
import json
import os
import random
import re
import signal
import socketserver
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from gitlab.v4.objects import Project, ProjectPipeline
from tests.support.machines.local_groups import PROGRAM, LocalGroups

from remuda.cli.main import call
from remuda.testing.client import connect, first_pipeline, script_output, trace_of, wait_for
from remuda.testing.lab import Lab, processes

HOST = "10.250.0.1"
"""Address of this host in the network of the plugin's machines."""
ONCE, AGAIN = 150, 50
"""Numbers of jobs without `retry`, and of jobs that are retried when their machine is lost."""
MOST_MACHINES, SLOTS = 8, 2
LINES = 20
KILLS = ("machine", "machine", "plugin", "manager", "machine", "all") * 3
SEED = int(os.environ.get("REMUDA_SEED", "11"))
SECONDS = 260


class Starts(socketserver.ThreadingTCPServer):
    """Records starts of jobs. A job sends a line with its id and machine, and waits for the answer."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 100

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []
        super().__init__(("0.0.0.0", 0), _Start)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        with self:
            thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="starts")
            thread.start()
            try:
                yield
            finally:
                self.shutdown()
                thread.join()


class _Start(socketserver.StreamRequestHandler):
    server: Starts
    timeout = 10

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            words = self.rfile.readline().decode().split()
            if len(words) == 2:
                self.server.seen.append((int(words[0]), words[1]))
                self.wfile.write(b"noted\n")


@dataclass
class Jobs:
    """The jobs of the test, which report their starts, and their expected output."""

    starts: Starts

    def __post_init__(self) -> None:
        line = 'echo "$CI_NODE_INDEX:$i of $CI_JOB_NAME"'
        self.script = [
            f"exec 9<>/dev/tcp/{HOST}/{self.starts.server_address[1]}",
            'echo "$CI_JOB_ID $(hostname)" >&9; read -r answer <&9',
            f"for i in $(seq {LINES}); do {line}; [ $((i % 5)) -ne 0 ] || sleep 0.9; done",
            "printf 'no line feed at the end'",
        ]

    def create(self, lab: Lab) -> Project:
        project = connect(lab).projects.create({"name": "many"})
        job = {"variables": {"GIT_STRATEGY": "none"}, "script": self.script}
        again = {"max": 2, "when": ["runner_system_failure"]}
        pipeline = {"once": {**job, "parallel": ONCE}, "again": {**job, "parallel": AGAIN, "retry": again}}
        action = {"action": "create", "file_path": ".gitlab-ci.yml", "content": json.dumps(pipeline)}
        project.commits.create({"branch": "main", "commit_message": "First commit", "actions": [action]})
        return project

    def expected(self, name: str) -> bytes:
        index = name.split()[-1].split("/")[0]
        echoes = [f"\x1b[32;1m$ {command}\x1b[0;m\n" for command in self.script]
        lines = "".join(f"{index}:{i + 1} of {name}\n" for i in range(LINES))
        return f"{echoes[0]}{echoes[1]}{echoes[2]}{lines}{echoes[3]}no line feed at the end\n".encode()


@dataclass
class Killer:
    """Kills something every few seconds until it has done all of `KILLS` or the block of `killing` ends."""

    lab: Lab
    local_groups: LocalGroups
    kills: Counter[str] = field(default_factory=Counter)
    machines: set[str] = field(default_factory=set)
    """Machines that it killed."""
    most_machines: int = 0
    """The largest number of machines that it saw at the same time."""

    def __post_init__(self) -> None:
        self._random = random.Random(SEED)
        self._stop = threading.Event()

    @contextlib.contextmanager
    def killing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, name="killer")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        for kind in self._random.sample(KILLS, len(KILLS)):
            until = time.monotonic() + self._random.uniform(2, 5)
            while time.monotonic() < until:
                self.most_machines = max(self.most_machines, len(self._running()))
                if self._stop.wait(0.1):
                    return
            if kind in ("manager", "all"):
                self.lab.manager.kill()
                self._note("manager")
            if kind == "plugin" and (plugin := plugin_of(self.lab)):
                os.kill(plugin, signal.SIGKILL)
                self._note("plugin")
            if kind in ("machine", "all") and (running := self._running()):
                self._kill_machine(self._random.choice(running))
            self.lab.manager.start()

    def _running(self) -> list[str]:
        return sorted(path.parent.name for path in self.local_groups.folder.glob("machines/[!.]*/up"))

    def _kill_machine(self, machine: str) -> None:
        with contextlib.suppress(OSError):
            pid = int((self.local_groups.folder / "machines" / machine / "pid").read_text().split()[0])
            self.machines.add(machine)
            os.kill(pid, signal.SIGKILL)
            self._note("machine", machine)

    def _note(self, what: str, name: str = "") -> None:
        self.kills[what] += 1
        print(f"{time.strftime('%X')} killed {what} {name}")


def plugin_of(lab: Lab) -> int:
    """Pid of the manager's plugin process; 0 if there is none."""
    manager = lab.manager.process.pid if lab.manager.process is not None else 0
    for pid, words in processes():
        with contextlib.suppress(OSError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if parent == manager and str(PROGRAM) in words:
                return pid
    return 0


def configure(lab: Lab, local_groups: LocalGroups) -> None:
    runner = lab.call("POST", "/api/v4/user/runners", {"runner_type": "instance_type", "description": "fleet"})
    at_once = MOST_MACHINES * SLOTS
    lab.config.write_text(
        f'concurrent = {at_once}\ncheck_interval = 1\n[[runners]]\nname = "fleet"\nurl = "{lab.url}"\n'
        f'token = "{runner["token"]}"\nexecutor = "instance"\nshell = "bash"\nrequest_concurrency = {at_once}\n'
        f'[runners.autoscaler]\nplugin = "{PROGRAM}"\nmax_instances = {MOST_MACHINES}\n'
        f'capacity_per_instance = {SLOTS}\nupdate_interval = "2s"\nupdate_interval_when_expecting = "500ms"\n'
        f'[runners.autoscaler.plugin_config]\nname = "{local_groups.name}"\nfolder = "{local_groups.folder}"\n'
        '[[runners.autoscaler.policy]]\nidle_time = "3s"\n'
    )
    lab.config.chmod(0o600)


def check(jobs: Jobs, project: Project, pipeline: ProjectPipeline, killer: Killer) -> None:
    """Every attempt of every job has ended as the module docstring says."""
    attempts: dict[str, list[Any]] = defaultdict(list)
    for job in sorted(pipeline.jobs.list(get_all=True, include_retried=True), key=lambda job: int(job.id)):
        attempts[job.name].append(job)
    assert len(attempts) == ONCE + AGAIN
    starts = Counter(job for job, _ in jobs.starts.seen)
    machines = dict(jobs.starts.seen)
    assert set(starts.values()) == {1}, [job for job in starts if starts[job] > 1]
    lost: Counter[str] = Counter()
    for name, job_attempts in attempts.items():
        for job in job_attempts:
            log = trace_of(project, job.id)
            if job.status == "success":
                assert script_output(log) == jobs.expected(name), (name, job.id)
                assert starts[job.id] == 1, (name, job.id)
                continue
            assert (job.status, job.failure_reason) == ("failed", "runner_system_failure"), (name, log[-500:])
            message = re.search(rb"ERROR: Job failed \(system failure\): the machine \S+/(\S+) is lost: ", log)
            assert message, (name, job.id, log[-500:])
            machine = message[1].decode()
            assert machine in killer.machines, (name, job.id, log[-500:])
            assert machines.get(job.id, machine) == machine, (name, job.id)
            lost[machine] += 1
        *before, last = job_attempts
        assert all(job.status == "failed" for job in before), name
        if name.startswith("again"):
            assert last.status == "success", (name, trace_of(project, last.id)[-500:])
        else:
            assert not any(starts[job.id] for job in before), f"{name} has no retry, but was run again"
    assert max(lost.values(), default=0) <= SLOTS, lost
    not_started = sum(not starts[job.id] for job_attempts in attempts.values() for job in job_attempts)
    print(f"{lost.total()} attempts were lost with {killer.kills['machine']} machines, {not_started} had not started")


@pytest.mark.timeout(SECONDS + 120)
async def test_two_hundred_jobs_while_plugin_manager_and_machines_are_killed(tmp_path: Path) -> None:
    if missing := LocalGroups.missing():
        pytest.skip(missing)
    print(f"the seed is {SEED}")
    async with LocalGroups(tmp_path) as local_groups:
        await asyncio.to_thread(_run, tmp_path, local_groups)


def _run(folder: Path, local_groups: LocalGroups) -> None:
    lab = Lab(folder / "lab")
    killer, jobs = Killer(lab, local_groups), Jobs(Starts())
    with contextlib.ExitStack() as stack:
        stack.enter_context(jobs.starts.serving())
        stack.callback(lab.close)
        lab.start_cell()
        configure(lab, local_groups)
        lab.manager.start()
        assert not list(local_groups.folder.glob("machines/*"))
        project = jobs.create(lab)
        pipeline = first_pipeline(lab, project)
        with killer.killing():
            wait_for(lab, pipeline, SECONDS)
        check(jobs, project, pipeline, killer)
        assert killer.most_machines == MOST_MACHINES
        assert min(killer.kills[what] for what in ("manager", "plugin", "machine")) >= 2, killer.kills
        lab.wait_until(lambda: not list(local_groups.folder.glob("machines/*")), "all machines are gone")
        with contextlib.redirect_stdout(io.StringIO()) as output:
            assert call(["scale", "sweep", "--data", str(lab.manager_data), "--output", "json"]) == 0
        report = json.loads(output.getvalue())
        assert report == {"orphans": [], "problems": [], "passed_over": [], "remarks": []}
        assert not local_groups.leftovers()
