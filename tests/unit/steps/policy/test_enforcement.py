"""What a policy is asked about the steps of a tree, and with whose rights they run."""

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
from remuda.steps.policy.values import Policy
from remuda.steps.process.step_files import StepFiles

PERSON = JobUser(uid=123456, gid=123456)
COMMAND = Definition(exec=Exec(command=("true",)))
ENVIRONMENT = Definition(environment=EnvironmentDefinition(open=Exec(command=("remuda-step", "container_open"))))
Build = Callable[..., Policy]


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enforcement_module, "host_of", lambda *_: Host(is_root=True, has_networks=True))


def an_enforcement(tmp_path: Path, policy: Policy | None = None, person: JobUser | None = PERSON) -> PolicyEnforcement:
    return PolicyEnforcement(
        policy=policy or Policy(), person=person, job=tmp_path / "data/jobs/j", work_dir=tmp_path / "work", key="k"
    )


def begun(
    parent: Node, reference: str, *, origin: str = "user", definition: Definition = COMMAND, phase: str = ""
) -> Node:
    """A step that has begun."""
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
    ("reference", "origin", "is_person"),
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
def test_only_what_must_has_the_agents_rights(
    tmp_path: Path, root: Node, reference: str, origin: str, is_person: bool
) -> None:
    enclosure = an_enforcement(tmp_path).enclose(begun(root, reference, origin=origin))
    assert (enclosure.person is PERSON) is is_person
    assert "steps" in enclosure.enforced


def test_steps_in_a_container_have_its_limits(tmp_path: Path, root: Node, policy_of: Build) -> None:
    enforcement = an_enforcement(tmp_path, policy_of({"limits": {"memory": "1g"}}))
    container = begun(root, "builtin://container@1.0.0", origin="compiled", definition=ENVIRONMENT)
    for phase in (OPEN, CLOSE):
        enclosure = enforcement.enclose(begun(container, container.loaded.reference, origin="compiled", phase=phase))  # type: ignore[union-attr]
        assert (enclosure.is_inside, enclosure.person) == (True, None)
    container.environment = {"exec": ["remuda-step", "container_exec", "engine", "c", ""]}
    assert json.loads(enclosure.limits.to_json()) == {"memory_bytes": 2**30}
    script = enforcement.enclose(begun(container, "builtin://script@1.0.0"))
    assert (script.is_inside, script.person, script.enforced) == (True, None, ("steps",))
    checkout = enforcement.enclose(begun(container, "builtin://checkout@1.0.0", origin="compiled"))
    assert (checkout.is_inside, checkout.person) == (False, PERSON)


def test_a_container_that_a_user_opens_has_the_users_rights(tmp_path: Path, root: Node, policy_of: Build) -> None:
    limited = policy_of({"limits": {"memory": "1g"}})
    container = begun(root, "builtin://container@1.0.0", definition=ENVIRONMENT)
    container.environment = {"exec": ["remuda-step", "container_exec", "engine", "c", ""]}
    for node in (begun(container, "builtin://container@1.0.0", phase=OPEN), begun(container, "builtin://script@1.0.0")):
        enclosure = an_enforcement(tmp_path, limited).enclose(node)
        assert (enclosure.person, enclosure.enforced) == (PERSON, ("steps",))
        assert an_enforcement(tmp_path, limited, person=None).enclose(node).enforced == ()


def test_environment_of_a_user_is_no_container(tmp_path: Path, root: Node) -> None:
    environment = begun(root, "/work/env/func.yml", definition=ENVIRONMENT)
    inner = an_enforcement(tmp_path).enclose(begun(environment, "builtin://script@1.0.0"))
    assert (inner.is_inside, inner.person) == (False, PERSON)
    assert an_enforcement(tmp_path, person=None).enclose(begun(environment, "builtin://script@1.0.0")).enforced == ()


def test_inner_steps_have_the_limits_of_the_outer_one(tmp_path: Path, root: Node, policy_of: Build) -> None:
    rules = [
        {"allow": "local:/work/outer/**", "limits": {"memory": "1g", "pids": 50}},
        {"allow": "builtin", "limits": {"memory": "2g", "timeout": 5}},
    ]
    enforcement = an_enforcement(tmp_path, policy_of({"rules": rules}))
    outer = begun(
        root, "/work/outer/func.yml", definition=Definition(run=(Call(name="x", place=Place(file="f", line=1)),))
    )
    limits = enforcement.limits(begun(outer, "builtin://script@1.0.0"))
    assert (limits.memory_bytes, limits.pids, limits.timeout_seconds) == (2**30, 50, 5)


def test_whatever_an_inserted_step_runs_is_inserted(tmp_path: Path, root: Node, policy_of: Build) -> None:
    policy = policy_of({"default": "deny", "insert": [{"name": "local", "script": "true", "before": "job"}]})
    enforcement = an_enforcement(tmp_path, policy)
    scan = begun(root, "/srv/scan/func.yml", origin="inserted", definition=Definition())
    inner = begun(scan, "builtin://script@1.0.0")
    assert inner.loaded is not None
    assert enforcement.decide(inner, inner.loaded).allowed
    own = begun(root, "builtin://script@1.0.0")
    assert own.loaded is not None
    assert not enforcement.decide(own, own.loaded).allowed


def test_nobody_has_a_say(tmp_path: Path, root: Node) -> None:
    enforcement = an_enforcement(tmp_path, person=None)
    node = begun(root, "builtin://script@1.0.0")
    assert node.loaded is not None
    decision = enforcement.decide(node, node.loaded)
    assert decision.allowed
    assert enforcement.report(decision, enforcement.enclose(node)) == {}


def test_who_wants_nothing_advisory(tmp_path: Path, root: Node, policy_of: Build) -> None:
    policy = policy_of({"advisory": "deny", "limits": {"memory": "1g"}})
    node = begun(root, "builtin://script@1.0.0")
    enforcement = an_enforcement(tmp_path, policy)
    refusal = enforcement.refusal(enforcement.enclose(node))
    assert refusal is not None
    assert refusal.startswith("the policy of runner r refuses steps whose limits are advisory (memory: ")


@pytest.mark.parametrize("kind", ["outputs", "exports", "masks"])
def test_a_pipe_in_the_place_of_a_file_that_a_step_is_given_holds_nobody_up(
    tmp_path: Path, root: Node, kind: str
) -> None:
    """A container of the job has the exchange folder, too, and may write there as root."""
    enforcement = an_enforcement(tmp_path, person=JobUser(uid=os.geteuid(), gid=os.getegid()))
    folder = tmp_path / "data/jobs/j"
    (folder / "exchange").mkdir(parents=True)
    files = StepFiles(folder, 3)
    os.mkfifo(folder / f"exchange/step-3.{kind}")
    node = begun(root, "builtin://cache_save@1.0.0", origin="compiled")
    # Whoever opens a pipe for writing waits for a reader, unless there is one.
    with ThreadPoolExecutor() as pool:
        giving = pool.submit(enforcement.give, files, node, has_raw=False)
        try:
            with pytest.raises(DefinitionError, match=f"step-3.{kind}: it has to be a plain file"):
                giving.result(timeout=5)
        finally:
            os.close(os.open(folder / f"exchange/step-3.{kind}", os.O_RDONLY | os.O_NONBLOCK))
