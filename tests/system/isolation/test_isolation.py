"""A hostile job attacks its neighbour, the agent, the manager, the cell and the policy, in each mode of running jobs.

`tests.support.isolation.isolation_table` and docs/reference/security.md have the promises.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.isolation.isolation_system import (
    CANARY,
    FIRST_UID,
    IMAGE,
    LINKED_FILE,
    Findings,
    IsolationSystem,
    unzip,
)
from tests.support.isolation.isolation_table import PROMISES, Mode, Verdict
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
"""Files that successful attacks create in a folder that only root can write to."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can enter, because users of jobs must reach their folders."""
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
    with IsolationSystem(folder, mode, engine) as system:
        findings = system.run()
    assert "ATTACKS ENDED" in findings.jobs["hostile"]["log"], findings.jobs["hostile"]["log"]
    assert "ALLOWED STEP RAN" in findings.jobs["evade"]["log"], findings.jobs["evade"]["log"]
    assert findings.worked("control.calls"), "the job could not reach the cell"
    results = {promise.key: evidence(promise.key, findings, mode) for promise in PROMISES}
    broken = {
        promise.key: results[promise.key]
        for promise in PROMISES
        if promise.verdict(mode) is Verdict.REFUSED and results[promise.key]
    }
    assert not broken, _format(broken)
    harmless = [p.key for p in PROMISES if p.verdict(mode) is Verdict.WORKS and not results[p.key]]
    assert not harmless, f"these attacks must succeed in this mode, to show that they are real: {harmless}"


def evidence(attack: str, findings: Findings, mode: Mode) -> list[str]:
    """Evidence that an attack succeeded; empty if it failed."""
    worked = findings.worked(attack)
    if attack.startswith("neighbour."):
        secret = findings.canaries["neighbour"]
        worked += [
            f"its secret was read: {attempt['variant']}"
            for attempt in findings.attempts
            if attempt["attack"] == attack and secret in attempt.get("read", "")
        ]
    if attack == "neighbour.files" and findings.changed != "nothing":
        worked.append(f"the neighbour found changed: {findings.changed}; {findings.jobs['neighbour']['log']}")
    if attack == "neighbour.processes":
        worked += [f"{name} is dead or stopped" for name in findings.dead if name.startswith("neighbour")]
    for part in ("agent", "manager", "cell"):
        if attack == f"{part}.process" or attack == f"{part}.processes":
            worked += [f"{name} is dead or stopped" for name in findings.dead if name.startswith(part)]
    if attack == "earlier.processes":
        worked += [f"{words} is still running" for words in findings.leftover_processes]
    if attack in MARKS:
        worked += [f"the job left {mark}" for mark in findings.marks if mark == MARKS[attack]]
    if attack == "agent.exchange" and mode is Mode.DOCKER:
        # In other modes such steps have the job's own rights, and a job may damage its own steps.
        forged = [job for job in findings.jobs.values() if "exchange/step" in job["log"]]
        worked += [f"a step of the platform read what {job['name']} had written: {job['log']}" for job in forged]
    if attack == "agent.links" and findings.linked != [LINKED_FILE]:
        worked.append(f"the folder behind the link has {findings.linked}")
    if attack == "agent.archives":
        worked += _uploaded_canaries(findings)
    if attack.startswith("policy."):
        worked += _policy_evidence(attack, findings, mode)
    return worked


def _uploaded_canaries(findings: Findings) -> list[str]:
    files = findings.jobs["hostile"]["files"]
    contents = {"junit": files.get("junit", b"")} | unzip(files.get("archive", b""))
    return [f"{name} was uploaded" for name, content in contents.items() if CANARY.encode() in content]


def _policy_evidence(attack: str, findings: Findings, mode: Mode) -> list[str]:
    hostile, evade = findings.jobs["hostile"], findings.jobs["evade"]
    steps = {step["path"]: step for step in hostile["steps"]}
    worked = []
    if attack == "policy.denied" and "DENIED STEP RAN" in evade["log"]:
        worked.append(evade["log"])
    if attack == "policy.inserted":
        lines = hostile["log"].splitlines()
        if not any(line.endswith("AUDITED") for line in lines) or "INTERCEPTED" in hostile["log"]:
            worked.append(
                "the inserted step did not run unchanged: " + "\n".join(line for line in lines if "ATTACK " not in line)
            )
        worked += [line for line in findings.jobs["inject_variables"]["log"].splitlines() if "AUDIT-INJECTED:" in line]
        if steps.get("/audit", {}).get("origin") != "inserted":
            worked.append(f"the inserted step is not in the results: {list(steps)}")
    if attack == "policy.results":
        policies = [step["policy"] for step in hostile["steps"] if step.get("policy")]
        worked += [f"a result says {policy}" for policy in policies if not set(policy.get("enforced", ())) <= {"steps"}]
        enforced = [step["policy"].get("enforced") for step in hostile["steps"] if step.get("origin") == "user"]
        expected = [] if mode is Mode.ROOT else ["steps"]
        worked += [f"a step of the job says {value}" for value in enforced if value not in (expected, None)]
    return worked


def _format(broken: dict[str, list[str]]) -> str:
    return "\n".join(f"{key}:\n  " + "\n  ".join(variants) for key, variants in broken.items())
