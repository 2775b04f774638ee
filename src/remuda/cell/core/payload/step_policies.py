"""Step policies: what the steps of jobs may do, as an organization, a group or a project says.

Decided here: under which name a policy is kept, that every change counts its version up, and which policies go out
with a job: those of everything it belongs to, the widest first, so that whoever enforces them can let a narrower one
only narrow. What a policy says is the step runner's matter; to the cell it is a JSON object. Pure.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.cell.errors import ConflictError, InvalidError
from remuda.model.runner import CapabilityKey, Pool

SCOPES = ("organization", "group", "project")
LIMIT_BYTES = 64 * 1024


class StepPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept for one scope; an empty document is none."""

    version: int = 0
    """Counts changes."""
    document: dict[str, Any] = {}
    updated_at: float | None = None


def policy_setting(scope: Pool) -> str:
    """Where the policy of an organization, a group or a project is kept."""
    return f"step_policy/{scope[0]}/{scope[1]}"


def read_policy(text: str | None) -> StepPolicy:
    """The policy that was kept, or the one that says nothing."""
    return msgspec.json.decode(text, type=StepPolicy) if text else StepPolicy()


def change_policy(kept: str | None, document: dict[str, Any], seen: int | None, now: float) -> str:
    """The next version, to be kept. ConflictError when it is not the version that the caller has seen."""
    old = read_policy(kept)
    if seen is not None and seen != old.version:
        raise ConflictError(f"the policy has version {old.version} by now, not {seen}; read it and change that")
    if len(msgspec.json.encode(document)) > LIMIT_BYTES:
        raise InvalidError(f"the document is longer than {LIMIT_BYTES} bytes")
    return msgspec.json.encode(StepPolicy(version=old.version + 1, document=document, updated_at=now)).decode()


def scopes_of(key: CapabilityKey) -> tuple[Pool, ...]:
    """Everything that a job belongs to, the widest first."""
    organization, *groups, project = key.pools()
    return (organization, *reversed(groups), project)


def for_payload(scopes: tuple[Pool, ...], kept: Mapping[str, str]) -> dict[str, Any] | None:
    """What goes out with a job; None when nobody has said anything."""
    policies = [(scope, read_policy(kept.get(policy_setting(scope)))) for scope in scopes]
    layers = [
        {"scope": kind, "id": number, "version": policy.version, "document": policy.document}
        for (kind, number), policy in policies
        if policy.document
    ]
    return {"version": 1, "layers": layers} if layers else None
