"""A whole system in one mode with three jobs: a neighbour that runs, an earlier one that is over, a hostile one.

The neighbour has the first slot all the time, the earlier and the hostile job one after the other the second. What the
hostile job goes for is found by looking at the machine as root, so that it need not guess anything. Everything is in
one folder and on loopback; what jobs leave in /tmp and in shared memory is removed at the end.
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

from tests.support.isolation.hostile import MADE
from tests.support.isolation.promises import Mode
from tests.support.isolation.relay import relay_into
from tests.support.servers.docker_engine import DockerEngine

import remuda
from remuda.testing.lab import Lab, processes

FIRST_UID = 300_000
IMAGE = "python:test"
GATEWAY = "172.17.0.1"
"""Of Docker's first network, in the engine's namespace."""
CANARY = "canary-of-the-operator-3f9c"
POLICY = """
[runners.remuda.policy]
rules = [{name = "nothing denied", deny = "local:**/denied/**"}]
insert = [{name = "audit", script = "%s", after = "job"}]
"""
AUDIT = (
    "echo AUDIT $(id -u) $PATH; (git config --global --list 2>/dev/null || true) | sed s/^/AUDIT-GIT:/; "
    "(env | grep bent || true) | sed s/^/AUDIT-BENT:/; echo AUDITED"
)
KEPT = "keep"
REPORTER = 20
HERE = Path(__file__).parent
PYTHON = "/usr/bin/python3"
"""The system's, which every user can read."""
OWNER = """
neighbour:
  script: ["%(python)s belongings.py hold %(name)s %(key)d"]
"""
EARLIER = """
earlier:
  cache: {key: all, paths: [kept]}
  script: ["%(python)s belongings.py leave %(name)s %(key)d"]
  artifacts: {paths: [kept]}
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
spoil:
  stage: test
  when: always
  dependencies: []
  script: ["%(python)s hostile.py forge targets.json >/dev/null 2>&1 & sleep 1"]
  artifacts: {paths: [hostile.py]}
bend:
  stage: test
  when: always
  dependencies: []
  variables:
    GIT_STRATEGY: clone
    PATH: $CI_PROJECT_DIR/bent:/usr/local/bin:/usr/bin:/bin
    HOME: $CI_PROJECT_DIR/bent
    XDG_CONFIG_HOME: $CI_PROJECT_DIR/bent
    BASH_ENV: $CI_PROJECT_DIR/bent/sh
    ENV: $CI_PROJECT_DIR/bent/sh
    PYTHONPATH: $CI_PROJECT_DIR/bent
    GIT_EXEC_PATH: $CI_PROJECT_DIR/bent
    GIT_SSH_COMMAND: $CI_PROJECT_DIR/bent/sh
    GIT_ASKPASS: $CI_PROJECT_DIR/bent/sh
    GIT_TEMPLATE_DIR: $CI_PROJECT_DIR/bent
    GIT_CONFIG_GLOBAL: $CI_PROJECT_DIR/bent/.gitconfig
    GIT_CONFIG_COUNT: "2"
    GIT_CONFIG_KEY_0: core.fsmonitor
    GIT_CONFIG_VALUE_0: $CI_PROJECT_DIR/bent/sh
    GIT_CONFIG_KEY_1: core.hooksPath
    GIT_CONFIG_VALUE_1: $CI_PROJECT_DIR/bent
    MAKEFILES: $CI_PROJECT_DIR/bent/evil.mk
    CI_COMMIT_SHA: bent
    CI_COMMIT_TAG: bent
    GITLAB_USER_LOGIN: bent
  script: ["echo bent"]
  cache: {key: bent, paths: [bent]}
  artifacts: {paths: [bent]}
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
look:
  stage: .post
  when: always
  dependencies: []
  script: ["echo looked"]
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
"""The image's own entrypoint runs before the container is open, beside the program that opens it."""
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
    """What happened."""

    tries: list[dict[str, Any]] = field(default_factory=list)
    """What the hostile job says of each try."""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name: the API's job, with log, steps and artifacts."""
    dead: list[str] = field(default_factory=list)
    """Who of the platform did not live through it."""
    left: list[str] = field(default_factory=list)
    """Processes of the earlier job when it was over."""
    marks: list[str] = field(default_factory=list)
    """What programs of the job left where only root can."""
    linked: list[str] = field(default_factory=list)
    """What is in the folder that the job put in the place of its own."""
    changed: str = ""
    """What the neighbour found changed."""
    canaries: dict[str, str] = field(default_factory=dict)
    """Secret texts by whose they are."""

    def worked(self, attack: str) -> list[str]:
        """The ways of an attack that worked."""
        return [
            f"{one['way']}: {one['read'][:80]!r}" for one in self.tries if one["attack"] == attack and one["worked"]
        ]


class Scene:
    """Use it as a context manager, then `play`."""

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
        self._names: dict[str, set[str]] = {}
        """What was in each folder of the targets before the hostile job."""

    def __enter__(self) -> "Scene":
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

    def play(self) -> Findings:
        """Let all jobs run; what came of it."""
        owner = self._project("neighbour", OWNER, secret=True)
        neighbour = self._ready(owner, "neighbour")
        work = next(self._folders("neighbour"))
        before = self._project("earlier", EARLIER, secret=True)
        earlier = self._ended(before)["earlier"]
        assert earlier["status"] == "success", earlier["log"]
        self.findings.left = [" ".join(words) for words in self._processes_of("earlier").values()]
        targets = self._targets(owner, neighbour, before, earlier)
        for path in (path for part in targets.values() if isinstance(part, dict) for path in _folders_in(part)):
            self._names[path] = set(os.listdir(path))
        eve = self._person("eve", reads=owner)
        own = self._project("attacker", ATTACKER, targets=targets, token=eve)
        self.findings.jobs |= self._ended(own)
        self._read_report()
        self.findings.marks = os.listdir(targets["marks"])
        self.findings.linked = sorted(os.listdir(targets["linked"]))
        self.findings.dead = self._dead(targets)
        (work / "release").touch()
        self.findings.jobs |= self._ended(owner)
        log = self.findings.jobs["neighbour"]["log"]
        self.findings.changed = log.partition("changed by others: ")[2].partition("\n")[0].strip()
        return self.findings

    def _install(self) -> Path:
        """An installation that users of jobs can read, as they are in /usr: standard steps run as them. Its Python."""
        installed = self.folder / "installed"
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", installed], check=True)
        [packages] = installed.glob("lib/python*/site-packages")
        shutil.copytree(Path(remuda.__file__).parent, packages / "remuda")
        # What only cell, manager and agent import stays where it is.
        (packages / "rest.pth").write_text("\n".join(sysconfig.get_path(kind) for kind in ("purelib", "platlib")))
        return installed / "bin/python"

    def _config(self, token: str) -> str:
        lab = self.lab
        text = (
            f'concurrent = 2\ncheck_interval = 1\n[[runners]]\nname = "scene"\nurl = "{lab.url}"\ntoken = "{token}"\n'
            f'executor = "{"docker" if self._engine else "shell"}"\n'
        )
        if self._engine is not None:
            text += f'[runners.docker]\nhost = "{self._engine.host}"\npull_policy = "never"\nimage = "{IMAGE}"\n'
        text += "[runners.remuda]\n"
        if self.mode in (Mode.FIRST_UID, Mode.SANDBOX):
            text += f"first_uid = {FIRST_UID}\n"
        if self.mode is Mode.SANDBOX:
            text += "sandbox = true\n"
        return text + POLICY % AUDIT.replace("\\", "\\\\").replace('"', '\\"')

    def _project(self, name: str, text: str, *, secret: bool = False, targets: Any = None, token: str = "") -> int:
        """A project with one commit, and with it one pipeline."""
        call = self.lab.call if not token else self._caller(token)
        number = int(call("POST", "/api/v4/projects", {"name": name})["id"])
        key = self._key + (2 if name == "earlier" else 0)
        if name == "attacker" and self._engine is not None:
            text += FORGE % (IMAGE, PYTHON)
        files = {".gitlab-ci.yml": text % {"python": PYTHON, "name": f"{name}-{self._nonce}", "key": key}}
        if secret:
            value = f"secret-of-{name}-{self._nonce}"
            self.findings.canaries[name] = value
            variables = [{"key": "KEPT_SECRET", "value": value, "masked": True}]
            variables.append({"key": "KEPT_FILE", "value": value, "variable_type": "file"})
            for variable in variables:
                call("POST", f"/api/v4/projects/{number}/variables", variable)
            files["belongings.py"] = (HERE / "belongings.py").read_text()
        else:
            files |= self._steps() | self._bent(targets["marks"]) | {"targets.json": json.dumps(targets)}
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
    def _bent(marks: str) -> dict[str, str]:
        """Programs and settings that variables of a job lead to; each leaves a mark."""
        program = f"#!/bin/sh\ntouch {marks}/by-variables\n"
        names = ("sh", "git", "env", "tar", "git-remote-http", "post-checkout", "reference-transaction", "git-fetch")
        found = {f"bent/{name}": program for name in names}
        found["bent/sitecustomize.py"] = f"import os; os.close(os.open('{marks}/by-variables', os.O_CREAT))\n"
        found["bent/.gitconfig"] = f"[core]\n\tfsmonitor = touch {marks}/by-variables\n"
        return found

    def _person(self, name: str, *, reads: int) -> str:
        """The token of a new user, who may read a project: what a job of theirs may not, though."""
        body = {"username": name, "name": name, "email": f"{name}@example.org", "organization_id": 1}
        number = self.lab.call("POST", "/api/v4/users", body)["id"]
        self.lab.call("POST", f"/api/v4/projects/{reads}/members", {"user_id": number, "access_level": REPORTER})
        made = self.lab.call("POST", f"/api/v4/users/{number}/personal_access_tokens", {"name": "t", "scopes": ["api"]})
        return str(made["token"])

    def _caller(self, token: str) -> Any:
        def call(method: str, path: str, body: object) -> Any:
            headers = {"PRIVATE-TOKEN": token, "Content-Type": "application/json"}
            request = urllib.request.Request(self.lab.url + path, json.dumps(body).encode(), headers, method=method)
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read())

        return call

    def _raw(self, path: str) -> bytes:
        token = self.lab.cell.environment["REMUDA_ADMIN_TOKEN"]
        request = urllib.request.Request(self.lab.url + path, headers={"PRIVATE-TOKEN": token})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    def _jobs(self, project: int) -> dict[str, dict[str, Any]]:
        return {job["name"]: job for job in self.lab.call("GET", f"/api/v4/projects/{project}/jobs")}

    def _ready(self, project: int, name: str) -> dict[str, Any]:
        """The job of a project that says so when it has everything it is to have."""

        def is_ready() -> bool:
            found = self._jobs(project)
            assert all(job["status"] != "failed" for job in found.values()), self._logs(project)
            return any((folder / "ready").exists() for folder in self._folders(name))

        self.lab.wait_until(is_ready, f"{name} is ready", seconds=120)
        return self._jobs(project)[name]

    def _ended(self, project: int) -> dict[str, dict[str, Any]]:
        """All jobs of a project, once they are over, with what is to be known of them."""
        final = ("success", "failed", "canceled", "skipped")

        def are_over() -> bool:
            found = self._jobs(project)
            return bool(found) and all(job["status"] in final for job in found.values())

        self.lab.wait_until(are_over, f"the jobs of project {project} end", seconds=300)
        found = self._jobs(project)
        for job in found.values():
            root = f"/api/v4/projects/{project}/jobs/{job['id']}"
            job["log"] = self._raw(f"{root}/trace").decode(errors="replace")
            steps = self.lab.call("GET", f"/api/remuda/v1/jobs/{job['id']}/steps")["results"]
            job["steps"] = [step for step in steps if step["event"] == "finished"]
            job["files"] = {}
            for kind in {one["file_type"] for one in job.get("artifacts", ())} & {"archive", "junit"}:
                job["files"][kind] = self._raw(f"{root}/artifacts?file_type={kind}")
        return found

    def _logs(self, project: int) -> str:
        return "\n".join(
            self._raw(f"/api/v4/projects/{project}/jobs/{job['id']}/trace").decode(errors="replace")
            for job in self._jobs(project).values()
        )

    def _folders(self, project: str) -> Iterator[Path]:
        """Working directories of a project's jobs."""
        return (path.parent for path in self.lab.manager_jobs.glob(f"builds/*/*/*/{project}/belongings.py"))

    def _targets(self, owner: int, neighbour: dict[str, Any], before: int, earlier: dict[str, Any]) -> dict[str, Any]:
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
        (linked / KEPT).touch(0o644)
        others = self._processes_of("neighbour")
        assert others, "the neighbour has no processes"
        helper = next(pid for pid, words in others.items() if words[:1] == ["sleep"])
        one_job = next(path for path in (agent / "jobs").iterdir() if path.is_dir())
        assert lab.cell.process is not None
        assert lab.manager.process is not None
        port = GATEWAY if self._engine else "127.0.0.1"
        return {
            "gentle": self.mode is Mode.ROOT,
            "canary": str(canary),
            "as_root": str(as_root),
            "marks": str(marks),
            "linked": str(linked),
            "engine": self._engine_socket(),
            "neighbour": self._belongings("neighbour")
            | {"pids": [pid for pid in others if pid != helper], "helper": helper},
            "earlier": self._belongings("earlier")
            | {"pids": list(self._processes_of("earlier")), "job": earlier["id"]},
            "agent": {
                "files": [str(path) for path in sorted(agent.rglob("*")) if _is_secret(path)][:80],
                "names": sorted(path.name for path in one_job.iterdir() if _is_secret(path)),
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
                "url": f"http://{port}:{lab.port}",
                "own_project": before + 1,
                "own_path": "eve/attacker",
                "other_project": owner,
                "other_path": "root/neighbour",
                "earlier_path": "root/earlier",
                "other_job": neighbour["id"],
            },
        }

    def _engine_socket(self) -> str:
        """The engine's, or one that is root's alone, as an engine's is."""
        if self._engine is not None:
            return self._engine.host.removeprefix("unix://")
        path = str(self.folder / "tools/engine.sock")
        listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        os.chmod(path, 0o660)
        listener.listen()
        return path

    def _belongings(self, project: str) -> dict[str, Any]:
        """What the job said of itself, and its caches; the neighbour gets one as the end of its job would make it."""
        told: dict[str, Any] = json.loads((next(self._folders(project)) / "belongings.json").read_text())
        cache = self.lab.manager_jobs / "cache"
        if project == "neighbour":
            own = cache if self._engine or self.mode is Mode.ROOT else cache / str(told["uid"])
            made = own / "root/neighbour/all.zip"
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(told["secret"])
            for path in (made, made.parent, made.parent.parent):
                shutil.chown(path, told["uid"], told["uid"])
        caches = [str(path) for path in cache.rglob("*") if f"/{project}" in str(path)]
        assert caches, f"{project} has no caches"
        return told | {"caches": caches}

    def _processes_of(self, project: str) -> dict[int, list[str]]:
        """Those that have its secret; as root everybody's environment can be read."""
        secret = f"KEPT_SECRET={self.findings.canaries[project]}".encode()
        found = {}
        for pid, words in processes():
            with contextlib.suppress(OSError):
                if secret in Path(f"/proc/{pid}/environ").read_bytes():
                    found[pid] = words
        return found

    def _read_report(self) -> None:
        for line in self.findings.jobs["hostile"]["log"].splitlines():
            _, is_try, text = line.partition("ATTACK ")
            if is_try:
                self.findings.tries.append(self._judge(json.loads(base64.b64decode(text))))

    def _judge(self, told: dict[str, Any]) -> dict[str, Any]:
        """Of a folder counts what is really in it: in a view of its own a job has folders with the same names."""
        verb, _, path = told["way"].partition(" ")
        if told["worked"] and path in self._names:
            listed = set(told["read"].split("\n"))
            is_real = listed >= self._names[path] if verb == "read" else os.path.exists(f"{path}/{MADE}")
            return told | {"worked": is_real}
        return told

    def _dead(self, targets: dict[str, Any]) -> list[str]:
        wanted = {f"agent {pid}": pid for pid in targets["agent"]["pids"]}
        wanted |= {f"neighbour {pid}": pid for pid in targets["neighbour"]["pids"]}
        wanted |= {"manager": targets["manager"]["pid"], "cell": targets["cell"]["pid"]}
        return [name for name, pid in wanted.items() if not _is_well(pid)]

    def _remove_leftovers(self) -> None:
        libc = ctypes.CDLL(None)
        for key in range(self._key, self._key + 8):
            if (found := libc.shmget(key, 0, 0)) >= 0:
                libc.shmctl(found, 0, None)
        for place in ("/tmp", "/dev/shm"):
            for path in Path(place).glob(f"*-{self._nonce}*"):
                path.unlink(missing_ok=True)
        for project in self.findings.canaries.keys() - {"operator"}:
            for pid in self._processes_of(project):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _is_well(pid: int) -> bool:
    """Whether a process is there and not stopped; one that is traced or stopped for a moment gets that moment."""
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
    """What of the agent's folder is nobody else's business. Standard steps are for every job to read; a number of a
    process says nothing that /proc does not; and what lies in its exchange folder is the job's."""
    return not {"packages", "exchange"} & set(path.parts) and path.suffix != ".pid"


def _folders_in(part: dict[str, Any]) -> Iterator[str]:
    for value in part.values():
        texts = value if isinstance(value, list) else [value, os.path.dirname(value)] if isinstance(value, str) else []
        yield from (text for text in texts if isinstance(text, str) and text.startswith("/") and os.path.isdir(text))


def archived(data: bytes) -> dict[str, bytes]:
    """The files of an artifacts archive; none of an empty text."""
    if not data:
        return {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
