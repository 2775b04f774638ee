import json
from collections.abc import Callable
from typing import Any

import pytest

from remuda.steps.language.values import ReferenceKind
from remuda.steps.policy.rules import parse_policy
from remuda.steps.policy.values import Policy, Subject

DIGEST = "sha256:" + "a" * 64


@pytest.fixture
def create_policy() -> Callable[..., Policy]:
    """Return a function that creates a policy. Keywords are authors; positional documents are those of the runner."""

    def create(*documents: dict[str, Any], **named: dict[str, Any]) -> Policy:
        layers = [("runner r", document) for document in documents] + list(named.items())
        text = json.dumps(
            {"version": 1, "layers": [{"author": author, "document": document} for author, document in layers]}
        )
        return parse_policy(text)

    return create


@pytest.fixture
def create_step() -> Callable[..., Subject]:
    """Return a function that creates a resolved step. The form of `reference` determines its kind."""

    def create(reference: str = "builtin://checkout@1.2.0", **values: Any) -> Subject:
        if reference.startswith("builtin://"):
            kind, version = ReferenceKind.BUILTIN, reference.partition("@")[2] or None
        elif reference.startswith("https://"):
            kind, version = ReferenceKind.GIT, None
        elif reference.startswith("/"):
            kind, version = ReferenceKind.LOCAL, None
        else:
            kind, version = ReferenceKind.OCI, None
        name = values.setdefault("name", "it")
        defaults = {"path": f"/{name}", "version": version, "digest": DIGEST}
        return Subject(kind=kind, reference=reference, **(defaults | values))

    return create
