"""Two hundred jobs on machines that come for them and go after them, while plugin, manager and machines are killed.

The cell, the manager, the plugin `local` and its machines, which are reached by SSH, are real processes. Every few
seconds one of them gets kill -9: the manager, which is started again, its plugin, a machine with whatever runs on it,
or all three. Each job reports its start to this test, which notes it before the job goes on, and prints a known text
slowly enough to be killed under.

What has to come of it: a job whose machine was not killed under it has succeeded, and every one that succeeded has its
log, byte for byte. One whose machine was killed has failed by `runner_system_failure` with that machine in its log. The
cell makes up for that if the machine's agent had not been given the job; if it had, the script may have begun, and only
a job that asks for it (`retry`) is tried again. So no script is run twice that nobody wants run twice. In the end there
are no machines and no orphans, and nothing is left of the group on this host. What is killed when is random, from a
seed (REMUDA_SEED for another one).
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
from tests.support.machines.local_yard import PROGRAM, Yard

from remuda.cli.main import call
from remuda.testing.client import connect, first_pipeline, script_output, trace_of, wait_for
from remuda.testing.lab import Lab, processes

HOST = "10.250.0.1"
"""This host, as machines of the plugin see it."""
ONCE, AGAIN = 150, 50
"""Jobs that are run once only, and those that want to be run again when their machine is lost."""
MOST_MACHINES, SLOTS = 8, 2
LINES = 20
KILLS = ("machine", "machine", "plugin", "manager", "machine", "all") * 3
SEED = int(os.environ.get("REMUDA_SEED", "11"))
SECONDS = 260


class Starts(socketserver.ThreadingTCPServer):
    """Who has started, and where: a line of a job's id and its machine, noted before the job hears back."""

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
    """Jobs that say where they start, and what they must have printed."""

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
        said = [f"\x1b[32;1m$ {command}\x1b[0;m\n" for command in self.script]
        lines = "".join(f"{index}:{i + 1} of {name}\n" for i in range(LINES))
        return f"{said[0]}{said[1]}{said[2]}{lines}{said[3]}no line feed at the end\n".encode()


@dataclass
class Killer:
    """Kills something every few seconds, until all of `KILLS` were done or nobody is interested any more."""

    lab: Lab
    yard: Yard
    died: Counter[str] = field(default_factory=Counter)
    machines: set[str] = field(default_factory=set)
    """Those that it killed."""
    most: int = 0
    """Machines that it saw at the same time."""

    def __post_init__(self) -> None:
        self._chance = random.Random(SEED)
        self._over = threading.Event()

    @contextlib.contextmanager
    def killing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._kill_on, name="killer")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _kill_on(self) -> None:
        for kind in self._chance.sample(KILLS, len(KILLS)):
            until = time.monotonic() + self._chance.uniform(2, 5)
            while time.monotonic() < until:
                self.most = max(self.most, len(self._running()))
                if self._over.wait(0.1):
                    return
            if kind in ("manager", "all"):
                self.lab.manager.kill()
                self._note("manager")
            if kind == "plugin" and (plugin := plugin_of(self.lab)):
                os.kill(plugin, signal.SIGKILL)
                self._note("plugin")
            if kind in ("machine", "all") and (running := self._running()):
                self._end(self._chance.choice(running))
            self.lab.manager.start()

    def _running(self) -> list[str]:
        return sorted(path.parent.name for path in self.yard.folder.glob("machines/[!.]*/up"))

    def _end(self, machine: str) -> None:
        with contextlib.suppress(OSError):
            pid = int((self.yard.folder / "machines" / machine / "pid").read_text().split()[0])
            self.machines.add(machine)
            os.kill(pid, signal.SIGKILL)
            self._note("machine", machine)

    def _note(self, what: str, name: str = "") -> None:
        self.died[what] += 1
        print(f"{time.strftime('%X')} killed {what} {name}")


def plugin_of(lab: Lab) -> int:
    """The process of the manager's plugin; 0: there is none now."""
    manager = lab.manager.process.pid if lab.manager.process is not None else 0
    for pid, words in processes():
        with contextlib.suppress(OSError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if parent == manager and str(PROGRAM) in words:
                return pid
    return 0


def configure(lab: Lab, yard: Yard) -> None:
    made = lab.call("POST", "/api/v4/user/runners", {"runner_type": "instance_type", "description": "fleet"})
    at_once = MOST_MACHINES * SLOTS
    lab.config.write_text(
        f'concurrent = {at_once}\ncheck_interval = 1\n[[runners]]\nname = "fleet"\nurl = "{lab.url}"\n'
        f'token = "{made["token"]}"\nexecutor = "instance"\nshell = "bash"\nrequest_concurrency = {at_once}\n'
        f'[runners.autoscaler]\nplugin = "{PROGRAM}"\nmax_instances = {MOST_MACHINES}\n'
        f'capacity_per_instance = {SLOTS}\nupdate_interval = "2s"\nupdate_interval_when_expecting = "500ms"\n'
        f'[runners.autoscaler.plugin_config]\nname = "{yard.name}"\nfolder = "{yard.folder}"\n'
        '[[runners.autoscaler.policy]]\nidle_time = "3s"\n'
    )
    lab.config.chmod(0o600)


def check(jobs: Jobs, project: Project, pipeline: ProjectPipeline, killer: Killer) -> None:
    """Every try of every job is what the head of this module says."""
    tries: dict[str, list[Any]] = defaultdict(list)
    for job in sorted(pipeline.jobs.list(get_all=True, include_retried=True), key=lambda one: int(one.id)):
        tries[job.name].append(job)
    assert len(tries) == ONCE + AGAIN
    starts = Counter(job for job, _ in jobs.starts.seen)
    where = dict(jobs.starts.seen)
    assert set(starts.values()) == {1}, [job for job in starts if starts[job] > 1]
    lost: Counter[str] = Counter()
    for name, of_name in tries.items():
        for job in of_name:
            log = trace_of(project, job.id)
            if job.status == "success":
                assert script_output(log) == jobs.expected(name), (name, job.id)
                assert starts[job.id] == 1, (name, job.id)
                continue
            assert (job.status, job.failure_reason) == ("failed", "runner_system_failure"), (name, log[-500:])
            said = re.search(rb"ERROR: Job failed \(system failure\): the machine \S+/(\S+) is lost: ", log)
            assert said, (name, job.id, log[-500:])
            machine = said[1].decode()
            assert machine in killer.machines, (name, job.id, log[-500:])
            assert where.get(job.id, machine) == machine, (name, job.id)
            lost[machine] += 1
        *before, last = of_name
        assert all(job.status == "failed" for job in before), name
        if name.startswith("again"):
            assert last.status == "success", (name, trace_of(project, last.id)[-500:])
        else:
            assert not any(starts[job.id] for job in before), f"{name} was run again, and does not want that"
    assert max(lost.values(), default=0) <= SLOTS, lost
    unheard = sum(not starts[one.id] for of_name in tries.values() for one in of_name)
    print(f"{lost.total()} tries were lost with {killer.died['machine']} machines, {unheard} before they had started")


@pytest.mark.timeout(SECONDS + 120)
async def test_two_hundred_jobs_while_plugin_manager_and_machines_die(tmp_path: Path) -> None:
    if missing := Yard.missing():
        pytest.skip(missing)
    print(f"the seed is {SEED}")
    async with Yard(tmp_path) as yard:
        await asyncio.to_thread(_run, tmp_path, yard)


def _run(folder: Path, yard: Yard) -> None:
    lab = Lab(folder / "lab")
    killer, jobs = Killer(lab, yard), Jobs(Starts())
    with contextlib.ExitStack() as stack:
        stack.enter_context(jobs.starts.serving())
        stack.callback(lab.close)
        lab.start_cell()
        configure(lab, yard)
        lab.manager.start()
        assert not list(yard.folder.glob("machines/*"))
        project = jobs.create(lab)
        pipeline = first_pipeline(lab, project)
        with killer.killing():
            wait_for(lab, pipeline, SECONDS)
        check(jobs, project, pipeline, killer)
        assert killer.most == MOST_MACHINES
        assert min(killer.died[what] for what in ("manager", "plugin", "machine")) >= 2, killer.died
        lab.wait_until(lambda: not list(yard.folder.glob("machines/*")), "all machines are gone")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            assert call(["scale", "sweep", "--data", str(lab.manager_data), "--output", "json"]) == 0
        found = json.loads(said.getvalue())
        assert found == {"orphans": [], "problems": [], "passed_over": [], "remarks": []}
        assert not yard.left()
