"""Five hundred jobs run on twenty machines over SSH and in containers while the manager and agents are killed.

Every few seconds the test kills (SIGKILL) the manager, which it starts again, or agents of some machines, or the local
agent. Each job appends its id and a unique number to a file outside of its working directory, and prints a known text
with a secret in it slowly enough to be killed meanwhile. No job may be lost or started twice, and every log must be
correct to the byte. What is killed when is random, from a seed. Another test deletes the manager's data folder while
jobs run: a new manager finds them through the machines.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from gitlab.v4.objects import Project
from tests.support.machines.machines import Machine, Machines
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine

from remuda.steps.process.fork_server import NAME
from remuda.testing.client import connect, first_pipeline, script_output, trace_of, wait_for
from remuda.testing.lab import Lab, name_of

MACHINES = 20
AT_ONCE = 24
"""Jobs at a time: one on each machine, and some in containers."""
ON_MACHINES, IN_CONTAINERS = (200, 200, 40), 60
LINES = 30
SECONDS = 400
SEED = 7
SECRET = "a-secret-that-nobody-may-read"
PRINT = (
    f'i=0; while [ $i -lt {LINES} ]; do echo "$CI_NODE_INDEX:$i $SECRET of $CI_JOB_NAME"; i=$((i+1)); '
    "[ $((i % 10)) -ne 0 ] || sleep SECONDS; done"
)
LAST = "printf 'no line feed at the end'"


@dataclass
class Jobs:
    """The jobs of the test, which record their starts in a file, and their expected output."""

    folder: Path
    sleep_seconds: float = 0.3
    """A job takes three times as long."""
    starts: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.starts = self.folder / "starts"
        count = f'echo "$CI_JOB_ID $(cat /proc/sys/kernel/random/uuid)" >> {self.starts}'
        self.script = [count, PRINT.replace("SECONDS", str(self.sleep_seconds)), LAST]

    @property
    def started(self) -> list[str]:
        """Job ids, one entry for each start."""
        return [line.split()[0] for line in self.starts.read_text().splitlines()] if self.starts.exists() else []

    def create(self, lab: Lab, *groups: tuple[str, str, int]) -> Project:
        """Create a project with these groups of jobs: name, tag, number of jobs."""
        project = connect(lab).projects.create({"name": "many"})
        project.variables.create({"key": "SECRET", "value": SECRET, "masked": True})
        pipeline = {
            name: {"parallel": count, "tags": [tag], "variables": {"GIT_STRATEGY": "none"}, "script": self.script}
            for name, tag, count in groups
        }
        action = {"action": "create", "file_path": ".gitlab-ci.yml", "content": json.dumps(pipeline)}
        project.commits.create({"branch": "main", "commit_message": "First commit", "actions": [action]})
        return project

    def expected(self, name: str) -> bytes:
        index = name.split()[-1].split("/")[0]
        echoes = [f"\x1b[32;1m$ {command}\x1b[0;m\n" for command in self.script]
        lines = "".join(f"{index}:{i} [MASKED] of {name}\n" for i in range(LINES))
        return f"{echoes[0]}{echoes[1]}{lines}{echoes[2]}no line feed at the end\n".encode()

    def check(self, project: Project, lab: Lab, seconds: float) -> None:
        """Wait for the pipeline; every job has succeeded, was started once, and has the expected log."""
        pipeline = first_pipeline(lab, project)
        status = wait_for(lab, pipeline, seconds)
        jobs = pipeline.jobs.list(get_all=True, include_retried=True)
        failed = [(job.name, trace_of(project, job.id)[-500:]) for job in jobs if job.status != "success"]
        assert status == "success", failed[:3]
        assert Counter(self.started) == Counter({str(job.id): 1 for job in jobs})
        for job in jobs:
            assert script_output(trace_of(project, job.id)) == self.expected(job.name), job.name


def configure(lab: Lab, machines: Machines, engine: DockerEngine | None, jobs: Jobs) -> None:
    """Write a configuration with a runner for the machines and, if there is an engine, one for containers."""

    def runner(name: str, executor: str, tag: str, limit: int) -> str:
        created = lab.call("POST", "/api/v4/user/runners", {"runner_type": "instance_type", "tag_list": tag})
        return (
            f'[[runners]]\nname = "{name}"\nurl = "{lab.url}"\ntoken = "{created["token"]}"\nexecutor = "{executor}"\n'
            f"limit = {limit}\nrequest_concurrency = {limit}\n"
        )

    entries = "".join(
        f'[[runners.remuda.machines]]\nname = "{machine.name}"\nhost = "{machine.address}"\n'
        f'identity_file = "{machines.key}"\nhost_key = "{machine.host_key}"\ncapacity = 1\n'
        for machine in machines.machines
    )
    text = f"concurrent = {AT_ONCE}\ncheck_interval = 1\n{runner('machines', 'instance', 'machines', AT_ONCE)}{entries}"
    if engine is not None:
        text += (
            f"{runner('containers', 'docker', 'containers', 4)}[runners.docker]\nhost = '{engine.host}'\n"
            f"image = '{BUSYBOX}'\npull_policy = 'never'\nvolumes = ['{jobs.folder}:{jobs.folder}']\n"
        )
    lab.config.write_text(text)
    lab.config.chmod(0o600)


def kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def agent_pids(machine: Machine) -> list[int]:
    """The agent of a machine. Its fork server has the same command line, but a process name of its own."""
    return [pid for pid in machine.pids("serve") if name_of(pid) != NAME]


@contextlib.contextmanager
def killing(lab: Lab, machines: Machines, seed: int) -> Iterator[Counter[str]]:
    """Kill something every few seconds while the block runs. Yields how often each kind was killed."""
    rng = random.Random(seed)
    stop = threading.Event()
    kills: Counter[str] = Counter()

    def run() -> None:
        while not stop.wait(rng.uniform(2, 5)):
            match rng.choice(("manager", "agents", "agents", "local agent", "all")):
                case "manager":
                    lab.manager.kill()
                    kills["manager"] += 1
                case "agents":
                    for machine in rng.sample(machines.machines, 3):
                        kill(agent_pids(machine))
                        kills["agents"] += 1
                case "local agent":
                    lab.kill_agent()
                    kills["local agent"] += 1
                case "all":
                    lab.manager.kill()
                    lab.kill_agent()
                    kill(agent_pids(rng.choice(machines.machines)))
                    kills["all"] += 1
            lab.manager.start()

    thread = threading.Thread(target=run, name="killer")
    thread.start()
    try:
        yield kills
    finally:
        stop.set()
        thread.join()


@pytest.mark.timeout(SECONDS + 60)
def test_five_hundred_jobs_while_manager_and_agents_are_killed(tmp_path: Path) -> None:
    if missing := Machines.missing() or DockerEngine.missing():
        pytest.skip(missing)
    jobs = Jobs(tmp_path / "shared")
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(DockerEngine())
        machines = stack.enter_context(Machines(MACHINES, shared=jobs.folder))
        stack.enter_context(machines.enter_network())
        lab = Lab(tmp_path / "lab", concurrent=AT_ONCE)
        stack.callback(lab.close)
        lab.start_cell()
        configure(lab, machines, engine, jobs)
        names = [(f"group {number}", "machines", count) for number, count in enumerate(ON_MACHINES)]
        project = jobs.create(lab, *names, ("boxed", "containers", IN_CONTAINERS))
        lab.manager.start()
        with killing(lab, machines, SEED) as kills:
            jobs.check(project, lab, SECONDS)
        assert kills["manager"] + kills["all"] > 3
        assert kills["agents"] > 3


def test_jobs_on_machines_are_found_when_the_managers_data_is_gone(tmp_path: Path) -> None:
    if missing := Machines.missing():
        pytest.skip(missing)
    jobs = Jobs(tmp_path / "shared", sleep_seconds=1.5)
    with Machines(3, shared=jobs.folder) as machines, machines.enter_network(), contextlib.ExitStack() as stack:
        lab = Lab(tmp_path / "lab")
        stack.callback(lab.close)
        lab.start_cell()
        configure(lab, machines, None, jobs)
        project = jobs.create(lab, ("some", "machines", 6))
        lab.manager.start()
        lab.wait_until(lambda: len(jobs.started) == len(machines.machines), "a job runs on each machine")
        lab.manager.kill()
        shutil.rmtree(lab.manager_data)
        lab.manager.start()
        jobs.check(project, lab, 90)
