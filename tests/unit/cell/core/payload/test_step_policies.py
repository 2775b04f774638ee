"""Step policies: versions, limits, and the order of layers in the payload."""

import msgspec
import pytest

from remuda.cell.core.payload.step_policies import (
    LIMIT_BYTES,
    change_policy,
    for_payload,
    policy_setting,
    read_policy,
    scopes_of,
)
from remuda.cell.errors import ConflictError, InvalidError
from remuda.model.runner import CapabilityKey

KEY = CapabilityKey(project_id=7, group_ids=(5, 3), organization_id=2)


def test_every_change_increments_the_version() -> None:
    first = change_policy(None, {"allow": ["a"]}, None, 100)
    second = change_policy(first, {"allow": ["b"]}, 1, 200)
    policy = read_policy(second)
    assert (policy.version, policy.document, policy.updated_at) == (2, {"allow": ["b"]}, 200)
    assert read_policy(None).version == 0


def test_a_change_of_an_outdated_version_is_refused() -> None:
    first = change_policy(None, {"allow": ["a"]}, 0, 100)
    with pytest.raises(ConflictError, match="version 1 by now, not 0"):
        change_policy(first, {}, 0, 200)


def test_a_document_has_a_limit() -> None:
    with pytest.raises(InvalidError, match="longer than"):
        change_policy(None, {"text": "x" * LIMIT_BYTES}, None, 100)


def test_the_widest_scope_comes_first() -> None:
    assert scopes_of(KEY) == (("organization", 2), ("group", 3), ("group", 5), ("project", 7))


def test_layers_in_the_payload() -> None:
    scopes = scopes_of(KEY)
    assert for_payload(scopes, {}) is None
    settings = {
        policy_setting(("project", 7)): change_policy(None, {"limit": 1}, None, 1),
        policy_setting(("organization", 2)): change_policy(None, {"limit": 9}, None, 1),
        policy_setting(("group", 3)): change_policy(None, {}, None, 1),
    }
    assert for_payload(scopes, settings) == {
        "version": 1,
        "layers": [
            {"scope": "organization", "id": 2, "version": 1, "document": {"limit": 9}},
            {"scope": "project", "id": 7, "version": 1, "document": {"limit": 1}},
        ],
    }


def test_unknown_fields_of_a_stored_policy_are_ignored() -> None:
    text = msgspec.json.encode({"version": 4, "document": {"x": 1}, "new": True}).decode()
    assert read_policy(text).version == 4
