"""A job's policy, applied to the steps of its tree: what the engine asks for every step that begins, runs and ends.

Decides nothing of its own: `rules` says what a policy means, `enclosure` what can be held. Here is only what question a
step of the tree is: what it is for rules, whose limits it has with those of the steps around it, and which of our own
programs are not held to a job's limits because they work for the job from outside. Nothing is remembered but the
request, so an agent that adopts the job comes to the same answers.
"""

import os
import stat
from pathlib import Path
from typing import Any

from remuda.steps.language.values import ReferenceKind
from remuda.steps.policy.enclosure import Enclosure, enclose
from remuda.steps.policy.host import Host
from remuda.steps.policy.people import Person, hand_over
from remuda.steps.policy.rules import decide, inserted
from remuda.steps.policy.values import NO_LIMITS, Decision, Inserted, Limits, Policy, Subject
from remuda.steps.tree import Loaded, Node

ENGINE_CLIENTS = frozenset({"container", "service", "service_stop"})
"""Our own steps that only talk to a container engine. What they have made is held to the limits, not they; and where
they are not the user's own idea, they do it with the agent's rights."""
INSERTED = "inserted"


class Custody:
    """Of one job."""

    def __init__(self, *, host: Host, policy: Policy, person: Person | None, job: Path, work_dir: Path) -> None:
        self.policy = policy
        self.person = person
        self._host = host
        self._job = job
        self._work_dir = work_dir

    @property
    def has_a_say(self) -> bool:
        """Whether anybody has said anything about this job's steps."""
        return bool(self.policy.layers) or self.person is not None

    def prepare(self) -> None:
        """Let whoever steps run as reach what is theirs, and nothing else of the agent's."""
        if self.person is None:
            return
        self._work_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        hand_over(self._work_dir, self.person)
        for folder in (self._job, self._job.parent, self._job.parent.parent):
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o011)

    def around_job(self) -> Inserted:
        return inserted(self.policy)

    def decide(self, node: Node, loaded: Loaded) -> Decision:
        """Whether a step may begin."""
        within = self._limits_around(node)
        if node.phase or node.is_group:
            return Decision(allowed=True, rule="", reason="", limits=within)
        return decide(self.policy, _subject(node, loaded), within=within)

    def around(self, node: Node, loaded: Loaded) -> Inserted:
        """What is to run before and after a step that may begin."""
        if node.phase or node.is_group or loaded.kind is None:
            return Inserted()
        return inserted(self.policy, _subject(node, loaded))

    def limits(self, node: Node) -> Limits:
        """Of a step that has begun."""
        return self.decide(node, node.loaded).limits if node.loaded is not None else NO_LIMITS

    def enclose(self, node: Node, *, serial: int) -> Enclosure:
        """What holds a step's command. `serial` tells its attempts apart."""
        is_client, is_inside = _is_engine_client(node), _runs_inside(node)
        has_agents_rights = is_inside or (is_client and node.call.origin != "user")
        return enclose(
            self._host,
            self.limits(node),
            key=f"{self._job.name}.{serial}",
            work_dir=self._work_dir,
            person=None if has_agents_rights else self.person,
            inside=is_client or is_inside,
            apart=is_inside or self.person is not None,
        )

    def refusal(self, enclosure: Enclosure) -> str | None:
        """Why a step must not start here although it may run: somebody wants nothing that is only advisory."""
        author = self.policy.refuses_advisory
        if author is None or not enclosure.advisory:
            return None
        weak = "; ".join(f"{name}: {why}" for name, why in enclosure.advisory.items())
        return f"the policy of {author} wants no step whose limits are advisory ({weak})"

    def report(self, decision: Decision, enclosure: Enclosure | None) -> dict[str, Any]:
        """`policy` of a result; nothing where nobody has a say."""
        if not self.has_a_say or not (decision.rule or enclosure):
            return {}
        told: dict[str, Any] = {"decision": "allowed" if decision.allowed else "denied", "rule": decision.rule}
        told["reason"] = decision.reason
        return {"policy": told | (enclosure.report() if enclosure else {})}

    def give(self, *paths: Path) -> None:
        """Files of a step, made here so that nobody can put something else in their place, for the step to write."""
        if self.person is not None:
            for path in paths:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_APPEND, 0o600)
                os.fchown(descriptor, self.person.uid, self.person.gid)
                os.close(descriptor)

    def _limits_around(self, node: Node) -> Limits:
        parent = node.parent
        return NO_LIMITS if parent is None or parent.parent is None else self.limits(parent)


def is_inserted(node: Node) -> bool:
    """Whether a policy put it there, or the step that runs it."""
    return any(one.call.origin == INSERTED for one in node.up())


def _subject(node: Node, loaded: Loaded) -> Subject:
    return Subject(
        # What stands in the job itself is the job's own, as a file in its folder is.
        kind=loaded.kind or ReferenceKind.LOCAL,
        reference=loaded.reference or "the job's own command",
        name=node.call.name,
        path=node.path,
        origin=INSERTED if is_inserted(node) else node.call.origin,
        digest=loaded.digest or "",
        commit=loaded.commit,
        version=loaded.version,
    )


def _is_engine_client(node: Node) -> bool:
    loaded = node.loaded
    if loaded is None or loaded.kind is not ReferenceKind.BUILTIN:
        return False
    return loaded.reference.partition("://")[2].partition("@")[0] in ENGINE_CLIENTS


def _runs_inside(node: Node) -> bool:
    """Whether its command runs in a container: our own programs never do."""
    if node.loaded is None or (node.loaded.is_program and not node.loaded.is_script):
        return False
    host = node.host
    while host is not None and not _is_engine_client(host):
        host = host.host
    return host is not None
