"""Step policies of organizations, groups and projects: rules for what the steps of their jobs may do. A policy is
stored as a setting; every change increments its version. The payload lists organization, groups and project in this
order, and a later policy can only restrict an earlier one. The manager passes them to the agent, which applies them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.cell.errors import ConflictError, InvalidError
from remuda.model.runner import CapabilityKey, Pool

SCOPES = ("organization", "group", "project")
LIMIT_BYTES = 64 * 1024


class StepPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The stored rules for the steps in jobs of an organization, group or project. An empty document: no policy."""

    version: int = 0
    """Number of changes so far."""
    document: dict[str, Any] = {}
    updated_at: float | None = None


def policy_setting(scope: Pool) -> str:
    return f"step_policy/{scope[0]}/{scope[1]}"


def read_policy(text: str | None) -> StepPolicy:
    """Decode the stored text of a step policy. None (nothing stored) gives an empty policy with version 0."""
    return msgspec.json.decode(text, type=StepPolicy) if text else StepPolicy()


def change_policy(stored: str | None, document: dict[str, Any], seen: int | None, now: float) -> str:
    """Return the text to store for the next version of a policy. Raises ConflictError if the stored version is not
    `seen`, the one that the user has edited (None: not checked), InvalidError if the document is too long."""
    old = read_policy(stored)
    if seen is not None and seen != old.version:
        raise ConflictError(
            f"the policy has version {old.version} by now, not {seen}; read it again and repeat your change"
        )
    if len(msgspec.json.encode(document)) > LIMIT_BYTES:
        raise InvalidError(f"the document is longer than {LIMIT_BYTES} bytes; shorten it")
    return msgspec.json.encode(StepPolicy(version=old.version + 1, document=document, updated_at=now)).decode()


def scopes_of(key: CapabilityKey) -> tuple[Pool, ...]:
    """Return the organization, groups (outer first) and project of a job, in this order, as pairs of kind and id."""
    groups = [("group", number) for number in reversed(key.group_ids)]
    return (("organization", key.organization_id), *groups, ("project", key.project_id))


def for_payload(scopes: tuple[Pool, ...], settings: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the step policies of `scopes`, in this order, for a job's payload (from `settings`); None if none."""
    policies = [(scope, read_policy(settings.get(policy_setting(scope)))) for scope in scopes]
    layers = [
        {"scope": kind, "id": number, "version": policy.version, "document": policy.document}
        for (kind, number), policy in policies
        if policy.document
    ]
    return {"version": 1, "layers": layers} if layers else None
