"""A complete system in one mode, with a running job (neighbour), a job that has ended (earlier) and a hostile job.

The neighbour uses the first slot all the time; the earlier and the hostile job use the second one after the other. The
targets of the hostile job are collected as root, so that it need not guess anything. Everything is in one folder and on
loopback; leftovers of the jobs in /tmp and in shared memory are removed at the end.
"""

import base64
import contextlib
import ctypes
import io
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.isolation.hostile import PLANTED
from tests.support.isolation.isolation_table import Mode
from tests.support.isolation.relay import relay_into
from tests.support.servers.docker_engine import DockerEngine

import remuda
from remuda.testing.lab import Lab, processes

FIRST_UID = 300_000
IMAGE = "python:test"
GATEWAY = "172.17.0.1"
"""Address of the host in Docker's default network, in the engine's namespace."""
CANARY = "canary-of-the-operator-3f9c"
POLICY = """
[runners.remuda.policy]
rules = [{name = "nothing denied", deny = "local:**/denied/**"}]
insert = [{name = "audit", script = "%s", after = "job"}]
"""
AUDIT = (
    "echo AUDIT $(id -u) $PATH; (git config --global --list 2>/dev/null || true) | sed s/^/AUDIT-GIT:/; "
    "(env | grep injected || true) | sed s/^/AUDIT-INJECTED:/; echo AUDITED"
)
LINKED_FILE = "keep"
"""The only file of the folder to which a job links its working directory."""
REPORTER = 20
HERE = Path(__file__).parent
PYTHON = "/usr/bin/python3"
"""The Python of the system, which every user can read."""
NEIGHBOUR = """
neighbour:
  script: ["%(python)s job_resources.py hold %(name)s %(key)d"]
"""
EARLIER = """
earlier:
  cache: {key: all, paths: [cached]}
  script: ["%(python)s job_resources.py leave %(name)s %(key)d"]
  artifacts: {paths: [cached]}
"""
ATTACKER = """
hostile:
  stage: build
  script: ["%(python)s hostile.py targets.json"]
  artifacts:
    when: always
    paths: [out, way/secret]
    reports: {junit: report.xml}
pack:
  stage: build
  script: ["%(python)s hostile.py pack targets.json"]
  artifacts: {paths: [none]}
unpack:
  stage: test
  when: always
  dependencies: [pack]
  script: ["echo unpacked"]
forge_outputs:
  stage: test
  when: always
  dependencies: []
  script: ["%(python)s hostile.py forge targets.json >/dev/null 2>&1 & sleep 1"]
  artifacts: {paths: [hostile.py]}
inject_variables:
  stage: test
  when: always
  dependencies: []
  variables:
    GIT_STRATEGY: clone
    PATH: $CI_PROJECT_DIR/injected:/usr/local/bin:/usr/bin:/bin
    HOME: $CI_PROJECT_DIR/injected
    XDG_CONFIG_HOME: $CI_PROJECT_DIR/injected
    BASH_ENV: $CI_PROJECT_DIR/injected/sh
    ENV: $CI_PROJECT_DIR/injected/sh
    PYTHONPATH: $CI_PROJECT_DIR/injected
    GIT_EXEC_PATH: $CI_PROJECT_DIR/injected
    GIT_SSH_COMMAND: $CI_PROJECT_DIR/injected/sh
    GIT_ASKPASS: $CI_PROJECT_DIR/injected/sh
    GIT_TEMPLATE_DIR: $CI_PROJECT_DIR/injected
    GIT_CONFIG_GLOBAL: $CI_PROJECT_DIR/injected/.gitconfig
    GIT_CONFIG_COUNT: "2"
    GIT_CONFIG_KEY_0: core.fsmonitor
    GIT_CONFIG_VALUE_0: $CI_PROJECT_DIR/injected/sh
    GIT_CONFIG_KEY_1: core.hooksPath
    GIT_CONFIG_VALUE_1: $CI_PROJECT_DIR/injected
    MAKEFILES: $CI_PROJECT_DIR/injected/evil.mk
    CI_COMMIT_SHA: injected
    CI_COMMIT_TAG: injected
    GITLAB_USER_LOGIN: injected
  script: ["echo injected"]
  cache: {key: injected, paths: [injected]}
  artifacts: {paths: [injected]}
evade:
  stage: test
  when: always
  dependencies: []
  run: [{name: allowed, step: ./allowed}, {name: outer, step: ./outer}]
swap:
  stage: deploy
  when: always
  dependencies: []
  script: ["%(python)s $PWD/hostile.py swap $PWD/targets.json"]
after_swap:
  stage: .post
  when: always
  dependencies: []
  script: ["echo after swap"]
"""
FORGE = """
forge:
  stage: test
  when: always
  dependencies: []
  image:
    name: "%s"
    entrypoint: [sh, -c, 'cd "$CI_PROJECT_DIR" && %s hostile.py forge targets.json & sleep 2; exec "$@"', sh]
  script: ["echo inside"]
"""
"""The entrypoint of the image forges files before the container is ready, while the agent's program starts in it."""
STEP = "spec: {}\n---\nexec: {command: [sh, -c, 'echo %s STEP RAN']}\n"
SPELLINGS = {
    "plain": "../denied",
    "dots": "./.././outer/../denied",
    "expression": "../${{ 'denied' }}",
    "nested": "../middle",
    "linked_folder": "../alias",
    "linked_file": "../linked",
}
LINKS = "ln -s denied alias && mkdir linked && ln -s ../denied/step.yml linked/step.yml"


@dataclass(slots=True)
class Findings:
    """Results of a run."""

    attempts: list[dict[str, Any]] = field(default_factory=list)
    """Reports of the hostile job about its attempts."""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Jobs of the API by name, with log, steps and artifact files."""
    dead: list[str] = field(default_factory=list)
    """Processes of the platform and the neighbour that were killed or stopped."""
    leftover_processes: list[str] = field(default_factory=list)
    """Command lines of processes of the earlier job after its end."""
    marks: list[str] = field(default_factory=list)
    """Files that programs of the job created in a folder that only root can write to."""
    linked: list[str] = field(default_factory=list)
    """Files in the folder to which the job linked its working directory."""
    changed: str = ""
    """Resources that the neighbour found changed."""
    canaries: dict[str, str] = field(default_factory=dict)
    """Secrets by their owner."""

    def worked(self, attack: str) -> list[str]:
        """Descriptions of the successful variants of an attack."""
        return [
            f"{attempt['variant']}: {attempt['read'][:80]!r}"
            for attempt in self.attempts
            if attempt["attack"] == attack and attempt["worked"]
        ]


class IsolationSystem:
    """A context manager that starts the system; `run` runs the jobs."""

    def __init__(self, folder: Path, mode: Mode, engine: DockerEngine | None = None) -> None:
        self.mode = mode
        self.folder = folder
        self._engine = engine
        self._nonce = secrets.token_hex(4)
        self._key = 0x52000000 + int(self._nonce[:5], 16) * 8
        self._stack = contextlib.ExitStack()
        self.lab = Lab(folder / "lab", concurrent=2)
        python = self._install()
        for part in (self.lab.cell, self.lab.manager):
            part.command[0] = str(python)
        self.findings = Findings()
        self._file_names: dict[str, set[str]] = {}
        """Names in each folder of the targets before the hostile job."""

    def __enter__(self) -> "IsolationSystem":
        lab = self.lab
        try:
            self._stack.callback(lab.close)
            self._stack.callback(self._remove_leftovers)
            lab.start_cell()
            token = lab.call("POST", "/api/v4/user/runners", {"runner_type": "instance_type"})["token"]
            lab.config.touch(0o600)
            lab.config.write_text(self._config(token))
            lab.manager.start()
            if self._engine is not None:
                self._stack.enter_context(relay_into(f"/run/netns/{self._engine.namespace}", lab.port))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self) -> Findings:
        """Run all jobs. Returns the results."""
        neighbour_project = self._create_project("neighbour", NEIGHBOUR, secret=True)
        neighbour = self._wait_until_ready(neighbour_project, "neighbour")
        work = next(self._work_dirs("neighbour"))
        earlier_project = self._create_project("earlier", EARLIER, secret=True)
        earlier = self._wait_for_jobs(earlier_project)["earlier"]
        assert earlier["status"] == "success", earlier["log"]
        self.findings.leftover_processes = [" ".join(words) for words in self._processes_of("earlier").values()]
        targets = self._targets(neighbour_project, neighbour, earlier_project, earlier)
        for path in (path for part in targets.values() if isinstance(part, dict) for path in _folders_in(part)):
            self._file_names[path] = set(os.listdir(path))
        eve = self._create_user("eve", reads=neighbour_project)
        own_project = self._create_project("attacker", ATTACKER, targets=targets, token=eve)
        self.findings.jobs |= self._wait_for_jobs(own_project)
        self._read_report()
        self.findings.marks = os.listdir(targets["marks"])
        self.findings.linked = sorted(os.listdir(targets["linked"]))
        self.findings.dead = self._dead_processes(targets)
        (work / "release").touch()
        self.findings.jobs |= self._wait_for_jobs(neighbour_project)
        log = self.findings.jobs["neighbour"]["log"]
        self.findings.changed = log.partition("changed by others: ")[2].partition("\n")[0].strip()
        return self.findings

    def _install(self) -> Path:
        """Install Remuda where the users of jobs can read it, because they run standard steps. Returns its Python."""
        installed = self.folder / "installed"
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", installed], check=True)
        [packages] = installed.glob("lib/python*/site-packages")
        shutil.copytree(Path(remuda.__file__).parent, packages / "remuda")
        # Other packages, which only cell, manager and agent import, are used from this environment.
        (packages / "rest.pth").write_text("\n".join(sysconfig.get_path(kind) for kind in ("purelib", "platlib")))
        return installed / "bin/python"

    def _config(self, token: str) -> str:
        lab = self.lab
        text = (
            f'concurrent = 2\ncheck_interval = 1\n[[runners]]\nname = "isolation"\nurl = "{lab.url}"\n'
            f'token = "{token}"\nexecutor = "{"docker" if self._engine else "shell"}"\n'
        )
        if self._engine is not None:
            text += f'[runners.docker]\nhost = "{self._engine.host}"\npull_policy = "never"\nimage = "{IMAGE}"\n'
        text += "[runners.remuda]\n"
        if self.mode in (Mode.FIRST_UID, Mode.SANDBOX):
            text += f"first_uid = {FIRST_UID}\n"
        if self.mode is Mode.SANDBOX:
            text += "sandbox = true\n"
        return text + POLICY % AUDIT.replace("\\", "\\\\").replace('"', '\\"')

    def _create_project(
        self, name: str, text: str, *, secret: bool = False, targets: Any = None, token: str = ""
    ) -> int:
        """Create a project with one commit, which starts a pipeline. Returns its id."""
        call = self.lab.call if not token else self._caller(token)
        number = int(call("POST", "/api/v4/projects", {"name": name})["id"])
        key = self._key + (2 if name == "earlier" else 0)
        if name == "attacker" and self._engine is not None:
            text += FORGE % (IMAGE, PYTHON)
        files = {".gitlab-ci.yml": text % {"python": PYTHON, "name": f"{name}-{self._nonce}", "key": key}}
        if secret:
            value = f"secret-of-{name}-{self._nonce}"
            self.findings.canaries[name] = value
            variables = [{"key": "JOB_SECRET", "value": value, "masked": True}]
            variables.append({"key": "JOB_SECRET_FILE", "value": value, "variable_type": "file"})
            for variable in variables:
                call("POST", f"/api/v4/projects/{number}/variables", variable)
            files["job_resources.py"] = (HERE / "job_resources.py").read_text()
        else:
            files |= self._steps() | self._injected_files(targets["marks"]) | {"targets.json": json.dumps(targets)}
            files["hostile.py"] = (HERE / "hostile.py").read_text()
        actions = [
            {"action": "create", "file_path": path, "content": text, "execute_filemode": text.startswith("#!")}
            for path, text in files.items()
        ]
        body = {"branch": "main", "commit_message": "All", "actions": actions}
        call("POST", f"/api/v4/projects/{number}/repository/commits", body)
        return number

    @staticmethod
    def _steps() -> dict[str, str]:
        ways = [{"name": name, "step": step, "continue_on_error": True} for name, step in SPELLINGS.items()]
        ways.insert(0, {"name": "make_links", "script": LINKS})
        outer = f"{json.dumps({'spec': {'remuda': 1}})}\n---\n{json.dumps({'run': ways})}\n"
        middle = "spec: {}\n---\nrun: [{name: inner, step: ../denied}]\n"
        return {
            "denied/step.yml": STEP % "DENIED",
            "allowed/step.yml": STEP % "ALLOWED",
            "outer/step.yml": outer,
            "middle/step.yml": middle,
        }

    @staticmethod
    def _injected_files(marks: str) -> dict[str, str]:
        """Programs and settings to which variables of a job point; each creates a mark if it is used."""
        program = f"#!/bin/sh\ntouch {marks}/by-variables\n"
        names = ("sh", "git", "env", "tar", "git-remote-http", "post-checkout", "reference-transaction", "git-fetch")
        files = {f"injected/{name}": program for name in names}
        files["injected/sitecustomize.py"] = f"import os; os.close(os.open('{marks}/by-variables', os.O_CREAT))\n"
        files["injected/.gitconfig"] = f"[core]\n\tfsmonitor = touch {marks}/by-variables\n"
        return files

    def _create_user(self, name: str, *, reads: int) -> str:
        """Create a user who may read a project; jobs of the user may not. Returns a token of the user."""
        body = {"username": name, "name": name, "email": f"{name}@example.org", "organization_id": 1}
        number = self.lab.call("POST", "/api/v4/users", body)["id"]
        self.lab.call("POST", f"/api/v4/projects/{reads}/members", {"user_id": number, "access_level": REPORTER})
        body = {"name": "t", "scopes": ["api"]}
        return str(self.lab.call("POST", f"/api/v4/users/{number}/personal_access_tokens", body)["token"])

    def _caller(self, token: str) -> Any:
        def call(method: str, path: str, body: object) -> Any:
            headers = {"PRIVATE-TOKEN": token, "Content-Type": "application/json"}
            request = urllib.request.Request(self.lab.url + path, json.dumps(body).encode(), headers, method=method)
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read())

        return call

    def _download(self, path: str) -> bytes:
        token = self.lab.cell.environment["REMUDA_ADMIN_TOKEN"]
        request = urllib.request.Request(self.lab.url + path, headers={"PRIVATE-TOKEN": token})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    def _jobs(self, project: int) -> dict[str, dict[str, Any]]:
        return {job["name"]: job for job in self.lab.call("GET", f"/api/v4/projects/{project}/jobs")}

    def _wait_until_ready(self, project: int, name: str) -> dict[str, Any]:
        """Wait until a job has created its resources. Returns the job."""

        def is_ready() -> bool:
            jobs = self._jobs(project)
            assert all(job["status"] != "failed" for job in jobs.values()), self._logs(project)
            return any((folder / "ready").exists() for folder in self._work_dirs(name))

        self.lab.wait_until(is_ready, f"{name} is ready", seconds=120)
        return self._jobs(project)[name]

    def _wait_for_jobs(self, project: int) -> dict[str, dict[str, Any]]:
        """Wait until all jobs of a project have ended. Returns them by name, with log, steps and artifact files."""
        final = ("success", "failed", "canceled", "skipped")

        def are_over() -> bool:
            jobs = self._jobs(project)
            return bool(jobs) and all(job["status"] in final for job in jobs.values())

        self.lab.wait_until(are_over, f"the jobs of project {project} end", seconds=300)
        jobs = self._jobs(project)
        for job in jobs.values():
            root = f"/api/v4/projects/{project}/jobs/{job['id']}"
            job["log"] = self._download(f"{root}/trace").decode(errors="replace")
            steps = self.lab.call("GET", f"/api/remuda/v1/jobs/{job['id']}/steps")["results"]
            job["steps"] = [step for step in steps if step["event"] == "finished"]
            job["files"] = {}
            for kind in {artifact["file_type"] for artifact in job.get("artifacts", ())} & {"archive", "junit"}:
                job["files"][kind] = self._download(f"{root}/artifacts?file_type={kind}")
        return jobs

    def _logs(self, project: int) -> str:
        return "\n".join(
            self._download(f"/api/v4/projects/{project}/jobs/{job['id']}/trace").decode(errors="replace")
            for job in self._jobs(project).values()
        )

    def _work_dirs(self, project: str) -> Iterator[Path]:
        """Working directories of a project's jobs."""
        return (path.parent for path in self.lab.manager_jobs.glob(f"builds/*/*/*/{project}/job_resources.py"))

    def _targets(
        self, neighbour_project: int, neighbour: dict[str, Any], earlier_project: int, earlier: dict[str, Any]
    ) -> dict[str, Any]:
        """The targets of the hostile job, for `targets.json`."""
        lab, jobs = self.lab, self.lab.manager_jobs
        agent, cell = jobs / "agent", lab.folder / "cell"
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        as_root = tools / "id"
        shutil.copy("/usr/bin/id", as_root)
        as_root.chmod(0o4755)
        canary = self.folder / "canary" / "secret"
        canary.parent.mkdir(exist_ok=True)
        canary.touch(0o600)
        canary.write_text(CANARY)
        self.findings.canaries["operator"] = CANARY
        marks, linked = self.folder / "marks", self.folder / "linked"
        marks.mkdir(0o700)
        linked.mkdir(0o755)
        (linked / LINKED_FILE).touch(0o644)
        others = self._processes_of("neighbour")
        assert others, "the neighbour has no processes"
        helper = next(pid for pid, words in others.items() if words[:1] == ["sleep"])
        job_folder = next(path for path in (agent / "jobs").iterdir() if path.is_dir())
        assert lab.cell.process is not None
        assert lab.manager.process is not None
        host = GATEWAY if self._engine else "127.0.0.1"
        return {
            "gentle": self.mode is Mode.ROOT,
            "canary": str(canary),
            "as_root": str(as_root),
            "marks": str(marks),
            "linked": str(linked),
            "engine": self._engine_socket(),
            "neighbour": self._resources("neighbour")
            | {"pids": [pid for pid in others if pid != helper], "helper": helper},
            "earlier": self._resources("earlier") | {"pids": list(self._processes_of("earlier")), "job": earlier["id"]},
            "agent": {
                "files": [str(path) for path in sorted(agent.rglob("*")) if _is_secret(path)][:80],
                "names": sorted(path.name for path in job_folder.iterdir() if _is_secret(path)),
                "socket": (agent / "socket").read_text().strip(),
                "pids": [*lab.agent_pids(), *lab.standby_pids()],
            },
            "manager": {
                "files": [str(lab.config), str(lab.manager_data), *map(str, lab.manager_data.glob("*"))],
                "socket": str(lab.manager_data / "control.sock"),
                "pid": lab.manager.process.pid,
            },
            "cell": {
                "files": [str(path) for path in (cell, *cell.glob("*"), *sorted(cell.rglob("*"))[:40])],
                "pid": lab.cell.process.pid,
                "url": f"http://{host}:{lab.port}",
                "own_project": earlier_project + 1,
                "own_path": "eve/attacker",
                "other_project": neighbour_project,
                "other_path": "root/neighbour",
                "earlier_path": "root/earlier",
                "other_job": neighbour["id"],
            },
        }

    def _engine_socket(self) -> str:
        """Socket of the engine; without an engine, a socket that only root can use, like that of an engine."""
        if self._engine is not None:
            return self._engine.host.removeprefix("unix://")
        path = str(self.folder / "tools/engine.sock")
        listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        os.chmod(path, 0o660)
        listener.listen()
        return path

    def _resources(self, project: str) -> dict[str, Any]:
        """Resources of a project's job, and its caches. Creates the cache that the neighbour would save at its end."""
        resources: dict[str, Any] = json.loads((next(self._work_dirs(project)) / "job_resources.json").read_text())
        cache = self.lab.manager_jobs / "cache"
        if project == "neighbour":
            own = cache if self._engine or self.mode is Mode.ROOT else cache / str(resources["uid"])
            archive = own / "root/neighbour/all.zip"
            archive.parent.mkdir(parents=True, exist_ok=True)
            archive.write_text(resources["secret"])
            for path in (archive, archive.parent, archive.parent.parent):
                shutil.chown(path, resources["uid"], resources["uid"])
        caches = [str(path) for path in cache.rglob("*") if f"/{project}" in str(path)]
        assert caches, f"{project} has no caches"
        return resources | {"caches": caches}

    def _processes_of(self, project: str) -> dict[int, list[str]]:
        """Command lines by pid of processes with the secret of a project in their environment."""
        secret = f"JOB_SECRET={self.findings.canaries[project]}".encode()
        command_lines = {}
        for pid, words in processes():
            with contextlib.suppress(OSError):
                if secret in Path(f"/proc/{pid}/environ").read_bytes():
                    command_lines[pid] = words
        return command_lines

    def _read_report(self) -> None:
        for line in self.findings.jobs["hostile"]["log"].splitlines():
            _, is_report, text = line.partition("ATTACK ")
            if is_report:
                self.findings.attempts.append(self._verify(json.loads(base64.b64decode(text))))

    def _verify(self, attempt: dict[str, Any]) -> dict[str, Any]:
        """Compare an attempt on a folder with the real folder: a job with its own mounts may see another folder under
        the same name."""
        verb, _, path = attempt["variant"].partition(" ")
        if attempt["worked"] and path in self._file_names:
            listed = set(attempt["read"].split("\n"))
            is_real = listed >= self._file_names[path] if verb == "read" else os.path.exists(f"{path}/{PLANTED}")
            return attempt | {"worked": is_real}
        return attempt

    def _dead_processes(self, targets: dict[str, Any]) -> list[str]:
        pids = {f"agent {pid}": pid for pid in targets["agent"]["pids"]}
        pids |= {f"neighbour {pid}": pid for pid in targets["neighbour"]["pids"]}
        pids |= {"manager": targets["manager"]["pid"], "cell": targets["cell"]["pid"]}
        return [name for name, pid in pids.items() if not _is_running(pid)]

    def _remove_leftovers(self) -> None:
        libc = ctypes.CDLL(None)
        for key in range(self._key, self._key + 8):
            if (segment_id := libc.shmget(key, 0, 0)) >= 0:
                libc.shmctl(segment_id, 0, None)
        for folder in ("/tmp", "/dev/shm"):
            for path in Path(folder).glob(f"*-{self._nonce}*"):
                path.unlink(missing_ok=True)
        for project in self.findings.canaries.keys() - {"operator"}:
            for pid in self._processes_of(project):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _is_running(pid: int) -> bool:
    """True if a process exists and is not stopped. A process that is stopped only for a moment counts as running."""
    for _ in range(50):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        if stat[stat.rindex(")") + 2] not in "TtZX":
            return True
        time.sleep(0.1)
    return False


def _is_secret(path: Path) -> bool:
    """True if jobs must not read this file of the agent's folder. Jobs may read standard steps and pid files, which
    show no more than /proc, and the exchange folder belongs to the job."""
    return not {"packages", "exchange"} & set(path.parts) and path.suffix != ".pid"


def _folders_in(part: dict[str, Any]) -> Iterator[str]:
    for value in part.values():
        texts = value if isinstance(value, list) else [value, os.path.dirname(value)] if isinstance(value, str) else []
        yield from (text for text in texts if isinstance(text, str) and text.startswith("/") and os.path.isdir(text))


def unzip(data: bytes) -> dict[str, bytes]:
    """Contents of an artifacts archive by file name; none, if `data` is empty."""
    if not data:
        return {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
