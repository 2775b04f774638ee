"""A hostile job against its neighbour, the agent, the manager, the cell and the policy, in each way of running jobs.

What is promised stands in `tests.support.isolation.promises`, and in docs/reference/security.md.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.isolation.promises import PROMISES, Mode, Verdict
from tests.support.isolation.scene import CANARY, FIRST_UID, IMAGE, KEPT, Findings, Scene, archived
from tests.support.servers.docker_engine import DEBIAN_PYTHON, DockerEngine, debian_files

from remuda.steps.policy.sandbox import problem

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


MARKS = {
    "agent.checkout": "by-git",
    "agent.variables": "by-variables",
    "agent.unpacking": "by-archive",
    "agent.exchange": "by-forgery",
}
"""What attacks leave in a folder that only root can write to."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where every user may go: users of jobs have to reach their folders."""
    with tempfile.TemporaryDirectory(prefix="remuda-isolation-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def engine(mode: Mode) -> Iterator[DockerEngine | None]:
    if mode is not Mode.DOCKER:
        yield None
        return
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    with DockerEngine() as engine:
        engine.add_image(IMAGE, debian_files(*DEBIAN_PYTHON))
        yield engine


@pytest.mark.parametrize("mode", list(Mode))
def test_promises_hold(mode: Mode, folder: Path, engine: DockerEngine | None) -> None:
    if mode is Mode.SANDBOX and (why := problem(FIRST_UID, FIRST_UID)):
        pytest.skip(f"no sandbox here: {why}")
    with Scene(folder, mode, engine) as scene:
        found = scene.play()
    assert "ATTACKS ENDED" in found.jobs["hostile"]["log"], found.jobs["hostile"]["log"]
    assert "ALLOWED STEP RAN" in found.jobs["evade"]["log"], found.jobs["evade"]["log"]
    assert found.worked("control.calls"), "the cell was out of the job's reach"
    seen = {promise.key: evidence(promise.key, found, mode) for promise in PROMISES}
    broken = {
        promise.key: seen[promise.key]
        for promise in PROMISES
        if promise.verdict(mode) is Verdict.REFUSED and seen[promise.key]
    }
    assert not broken, _shown(broken)
    harmless = [p.key for p in PROMISES if p.verdict(mode) is Verdict.WORKS and not seen[p.key]]
    assert not harmless, f"these attacks are not seen to work, so nothing shows that they are real ones: {harmless}"


def evidence(attack: str, found: Findings, mode: Mode) -> list[str]:
    """What shows that an attack worked."""
    worked = found.worked(attack)
    if attack.startswith("neighbour."):
        secret = found.canaries["neighbour"]
        worked += [
            f"its secret was read: {one['way']}"
            for one in found.tries
            if one["attack"] == attack and secret in one.get("read", "")
        ]
    if attack == "neighbour.files" and found.changed != "nothing":
        worked.append(f"the neighbour found changed: {found.changed}; {found.jobs['neighbour']['log']}")
    if attack == "neighbour.processes":
        worked += [f"{name} is dead or stopped" for name in found.dead if name.startswith("neighbour")]
    for part in ("agent", "manager", "cell"):
        if attack == f"{part}.process" or attack == f"{part}.processes":
            worked += [f"{name} is dead or stopped" for name in found.dead if name.startswith(part)]
    if attack == "earlier.processes":
        worked += [f"{words} is still there" for words in found.left]
    if attack in MARKS:
        worked += [f"the job left {mark}" for mark in found.marks if mark == MARKS[attack]]
    if attack == "agent.exchange" and mode is Mode.DOCKER:
        # Elsewhere such steps have the job's own rights, and the job may spoil what is its own.
        spoilt = [job for job in found.jobs.values() if "exchange/step" in job["log"]]
        worked += [f"a step of the platform read what {job['name']} had written: {job['log']}" for job in spoilt]
    if attack == "agent.links" and found.linked != [KEPT]:
        worked.append(f"the folder behind the link has {found.linked}")
    if attack == "agent.archives":
        worked += _uploaded(found)
    if attack.startswith("policy."):
        worked += _of_policy(attack, found, mode)
    return worked


def _uploaded(found: Findings) -> list[str]:
    files = found.jobs["hostile"]["files"]
    contents = {"junit": files.get("junit", b"")} | archived(files.get("archive", b""))
    return [f"{name} was uploaded" for name, content in contents.items() if CANARY.encode() in content]


def _of_policy(attack: str, found: Findings, mode: Mode) -> list[str]:
    hostile, evade = found.jobs["hostile"], found.jobs["evade"]
    steps = {step["path"]: step for step in hostile["steps"]}
    worked = []
    if attack == "policy.denied" and "DENIED STEP RAN" in evade["log"]:
        worked.append(evade["log"])
    if attack == "policy.inserted":
        lines = hostile["log"].splitlines()
        if not any(line.endswith("AUDITED") for line in lines) or "INTERCEPTED" in hostile["log"]:
            worked.append(
                "the inserted step did not run as it is: " + "\n".join(line for line in lines if "ATTACK " not in line)
            )
        worked += [line for line in found.jobs["bend"]["log"].splitlines() if "AUDIT-BENT:" in line]
        if steps.get("/audit", {}).get("origin") != "inserted":
            worked.append(f"the inserted step is not in the results: {list(steps)}")
    if attack == "policy.results":
        told = [step["policy"] for step in hostile["steps"] if step.get("policy")]
        worked += [f"a result says {one}" for one in told if not set(one.get("enforced", ())) <= {"steps"}]
        own = [step["policy"].get("enforced") for step in hostile["steps"] if step.get("origin") == "user"]
        expected = [] if mode is Mode.ROOT else ["steps"]
        worked += [f"a step of the job says {one}" for one in own if one not in (expected, None)]
    return worked


def _shown(broken: dict[str, list[str]]) -> str:
    return "\n".join(f"{key}:\n  " + "\n  ".join(ways) for key, ways in broken.items())
