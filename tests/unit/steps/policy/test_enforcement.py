"""Decisions of a policy about the steps of a tree, and the user that runs them."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remuda.steps.errors import DefinitionError
from remuda.steps.job_tree.tree import CLOSE, OPEN, Loaded, Node, State, Tree
from remuda.steps.language.values import (
    Call,
    Definition,
    EnvironmentDefinition,
    Exec,
    Place,
    ReferenceKind,
    Spec,
    Step,
)
from remuda.steps.policy import enforcement as enforcement_module
from remuda.steps.policy.enforcement import PolicyEnforcement
from remuda.steps.policy.host_abilities import Host
from remuda.steps.policy.job_user import JobUser
from remuda.steps.policy.sandbox import Sandbox
from remuda.steps.policy.values import Policy
from remuda.steps.process.step_files import StepFiles

PERSON = JobUser(uid=123456, gid=123456)
COMMAND = Definition(exec=Exec(command=("true",)))
ENVIRONMENT = Definition(environment=EnvironmentDefinition(open=Exec(command=("remuda-step", "container_open"))))
CreatePolicy = Callable[..., Policy]


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enforcement_module, "host_of", lambda *_: Host(is_root=True, has_networks=True))


def create_enforcement(
    tmp_path: Path, policy: Policy | None = None, person: JobUser | None = PERSON
) -> PolicyEnforcement:
    return PolicyEnforcement(
        policy=policy or Policy(), person=person, job=tmp_path / "data/jobs/j", work_dir=tmp_path / "work", key="k"
    )


def start_node(
    parent: Node, reference: str, *, origin: str = "user", definition: Definition = COMMAND, phase: str = ""
) -> Node:
    """Create the node of a step that has started."""
    name = phase or reference.partition("://")[2].partition("@")[0] or "local"
    node = Node(Call(name=name, place=Place(file="f", line=1), origin=origin), parent, 0, phase)
    kind = ReferenceKind.BUILTIN if reference.startswith("builtin://") else ReferenceKind.LOCAL
    node.loaded = Loaded(step=Step(spec=Spec(), definition=definition), reference=reference, kind=kind, version="1.0.0")
    node.serial, node.state = 3, State.ENTERED
    return node


@pytest.fixture
def root(tmp_path: Path) -> Node:
    return Tree(Step(spec=Spec(), definition=COMMAND), work_dir=str(tmp_path)).root


@pytest.mark.parametrize(
    ("reference", "origin", "is_job_user"),
    [
        ("builtin://script@1.0.0", "user", True),
        ("builtin://checkout@1.0.0", "compiled", True),
        ("/work/step/func.yml", "user", True),
        ("builtin://service@1.0.0", "compiled", False),
        ("builtin://sign@1.0.0", "compiled", False),
        ("builtin://service@1.0.0", "user", True),
        ("builtin://sign@1.0.0", "user", True),
    ],
)
def test_few_run_as_the_agents_user(tmp_path: Path, root: Node, reference: str, origin: str, is_job_user: bool) -> None:
    enclosure = create_enforcement(tmp_path).enclose(start_node(root, reference, origin=origin))
    assert (enclosure.person is PERSON) is is_job_user
    assert "steps" in enclosure.enforced


def test_steps_in_a_container_have_its_limits(tmp_path: Path, root: Node, create_policy: CreatePolicy) -> None:
    enforcement = create_enforcement(tmp_path, create_policy({"limits": {"memory": "1g"}}))
    container = start_node(root, "builtin://container@1.0.0", origin="compiled", definition=ENVIRONMENT)
    for phase in (OPEN, CLOSE):
        phase_node = start_node(container, "builtin://container@1.0.0", origin="compiled", phase=phase)
        enclosure = enforcement.enclose(phase_node)
        assert (enclosure.is_inside, enclosure.person) == (True, None)
    container.environment = {"exec": ["remuda-step", "container_exec", "engine", "c", ""]}
    assert json.loads(enclosure.limits.to_json()) == {"memory_bytes": 2**30}
    script = enforcement.enclose(start_node(container, "builtin://script@1.0.0"))
    assert (script.is_inside, script.person, script.enforced) == (True, None, ("steps",))
    checkout = enforcement.enclose(start_node(container, "builtin://checkout@1.0.0", origin="compiled"))
    assert (checkout.is_inside, checkout.person) == (False, PERSON)


def test_container_of_the_job_runs_as_the_jobs_user(tmp_path: Path, root: Node, create_policy: CreatePolicy) -> None:
    policy = create_policy({"limits": {"memory": "1g"}})
    container = start_node(root, "builtin://container@1.0.0", definition=ENVIRONMENT)
    container.environment = {"exec": ["remuda-step", "container_exec", "engine", "c", ""]}
    for node in (
        start_node(container, "builtin://container@1.0.0", phase=OPEN),
        start_node(container, "builtin://script@1.0.0"),
    ):
        enclosure = create_enforcement(tmp_path, policy).enclose(node)
        assert (enclosure.person, enclosure.enforced) == (PERSON, ("steps",))
        assert create_enforcement(tmp_path, policy, person=None).enclose(node).enforced == ()


def test_an_environment_of_the_job_is_not_a_container(tmp_path: Path, root: Node) -> None:
    environment = start_node(root, "/work/env/func.yml", definition=ENVIRONMENT)
    node = start_node(environment, "builtin://script@1.0.0")
    inner = create_enforcement(tmp_path).enclose(node)
    assert (inner.is_inside, inner.person) == (False, PERSON)
    assert create_enforcement(tmp_path, person=None).enclose(node).enforced == ()


def test_inner_steps_have_limits_of_the_outer_step(tmp_path: Path, root: Node, create_policy: CreatePolicy) -> None:
    rules = [
        {"allow": "local:/work/outer/**", "limits": {"memory": "1g", "pids": 50}},
        {"allow": "builtin", "limits": {"memory": "2g", "timeout": 5}},
    ]
    enforcement = create_enforcement(tmp_path, create_policy({"rules": rules}))
    outer = start_node(
        root, "/work/outer/func.yml", definition=Definition(run=(Call(name="x", place=Place(file="f", line=1)),))
    )
    limits = enforcement.limits(start_node(outer, "builtin://script@1.0.0"))
    assert (limits.memory_bytes, limits.pids, limits.timeout_seconds) == (2**30, 50, 5)


def test_steps_of_an_inserted_step_count_as_inserted(tmp_path: Path, root: Node, create_policy: CreatePolicy) -> None:
    policy = create_policy({"default": "deny", "insert": [{"name": "local", "script": "true", "before": "job"}]})
    enforcement = create_enforcement(tmp_path, policy)
    scan = start_node(root, "/srv/scan/func.yml", origin="inserted", definition=Definition())
    inner = start_node(scan, "builtin://script@1.0.0")
    assert inner.loaded is not None
    assert enforcement.decide(inner, inner.loaded).allowed
    own_step = start_node(root, "builtin://script@1.0.0")
    assert own_step.loaded is not None
    assert not enforcement.decide(own_step, own_step.loaded).allowed


def test_without_policy_and_user_everything_is_allowed_and_nothing_reported(tmp_path: Path, root: Node) -> None:
    enforcement = create_enforcement(tmp_path, person=None)
    node = start_node(root, "builtin://script@1.0.0")
    assert node.loaded is not None
    decision = enforcement.decide(node, node.loaded)
    assert decision.allowed
    assert enforcement.report(decision, enforcement.enclose(node)) == {}


def test_advisory_limits_can_be_refused(tmp_path: Path, root: Node, create_policy: CreatePolicy) -> None:
    policy = create_policy({"advisory": "deny", "limits": {"memory": "1g"}})
    node = start_node(root, "builtin://script@1.0.0")
    enforcement = create_enforcement(tmp_path, policy)
    refusal = enforcement.refusal(enforcement.enclose(node))
    assert refusal is not None
    assert refusal.startswith("the policy of runner r refuses steps whose limits are advisory (memory: ")


@pytest.mark.parametrize("kind", ["outputs", "exports", "masks"])
def test_a_pipe_in_place_of_a_file_of_the_step_does_not_block(tmp_path: Path, root: Node, kind: str) -> None:
    """A container of the job has access to the exchange folder, too, and may write there as root."""
    enforcement = create_enforcement(tmp_path, person=JobUser(uid=os.geteuid(), gid=os.getegid()))
    folder = tmp_path / "data/jobs/j"
    (folder / "exchange").mkdir(parents=True)
    files = StepFiles(folder, 3)
    os.mkfifo(folder / f"exchange/step-3.{kind}")
    node = start_node(root, "builtin://cache_save@1.0.0", origin="compiled")
    # Opening a pipe for writing blocks until there is a reader.
    with ThreadPoolExecutor() as pool:
        task = pool.submit(enforcement.give, files, node, has_raw=False)
        try:
            with pytest.raises(DefinitionError, match=f"step-3.{kind}: it has to be a plain file"):
                task.result(timeout=5)
        finally:
            os.close(os.open(folder / f"exchange/step-3.{kind}", os.O_RDONLY | os.O_NONBLOCK))


def test_a_command_of_the_job_that_the_agent_starts_has_the_jobs_user(tmp_path: Path) -> None:
    argv, env = create_enforcement(tmp_path).wrap_job_command(["ssh", "host"], {"HOME": "/h"}, tmp_path / "env")
    assert json.loads(argv[-3]) == {"uid": PERSON.uid, "gid": PERSON.gid}
    assert (argv[-2:], env) == (("ssh", "host"), {"HOME": "/h"})


def test_a_command_of_the_job_that_the_agent_starts_runs_in_the_sandbox(tmp_path: Path) -> None:
    sandbox = Sandbox(work_dir="/work", exchange="/job/exchange")
    enforcement = PolicyEnforcement(
        policy=Policy(), person=None, job=tmp_path, work_dir=tmp_path, key="k", sandbox=sandbox
    )
    argv, env = enforcement.wrap_job_command(["ssh", "host"], {"HOME": "/h"}, tmp_path / "env")
    assert "remuda-sandbox" in argv
    assert argv[-2:] == ("ssh", "host")
    assert "HOME" not in env
    assert b"--setenv\0HOME\0/h\0" in (tmp_path / "env").read_bytes()
