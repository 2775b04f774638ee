"""Provides steps that need no lookup of a package, and converts loaded steps for the journal and back. Pure: no I/O."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from remuda.steps.errors import DefinitionError
from remuda.steps.job_tree.tree import NOTHING, Loaded, Node, phase_step
from remuda.steps.language.reading import read_step
from remuda.steps.language.values import ReferenceKind

SCRIPT_VERSION = "1.0.0"
_GROUP = Loaded(step=NOTHING, reference="")
_SCRIPT = Loaded(
    step=NOTHING,
    reference=f"builtin://script@{SCRIPT_VERSION}",
    kind=ReferenceKind.BUILTIN,
    version=SCRIPT_VERSION,
)
"""The script step, which needs no package: the agent itself runs its text in a shell."""


def load_known(node: Node) -> Loaded | None:
    """Return the step of a node that needs no package: a group, a script, or what opens, closes or delegates an
    environment. None for other nodes. Raises DefinitionError for an unknown script version."""
    if node.phase:
        assert node.parent is not None
        assert node.parent.loaded is not None
        return replace(node.parent.loaded, step=phase_step(node))
    reference = node.call.reference
    if reference is None:
        return node.loaded or _GROUP
    if reference.kind is ReferenceKind.BUILTIN and reference.path == "script":
        if not f"{SCRIPT_VERSION}.".startswith(f"{reference.version}." if reference.version else ""):
            raise DefinitionError(f"{reference.text}: this agent has {_SCRIPT.reference}")
        return _SCRIPT
    return None


def to_stored(loaded: Loaded) -> dict[str, Any]:
    """Convert a loaded step to JSON values for the journal. Empty if `load_known` can restore the step."""
    if loaded.kind is None or loaded.is_script:
        return {}
    return {
        "reference": loaded.reference,
        "kind": str(loaded.kind),
        "folder": loaded.folder,
        **({"visible_folder": loaded.visible_folder} if loaded.visible_folder else {}),
        "root": loaded.root,
        "text": loaded.text,
        "digest": loaded.digest,
        "commit": loaded.commit,
        "version": loaded.version,
        "real": loaded.real,
    }


def restore(node: Node, values: Mapping[str, Any]) -> Loaded:
    if not values or node.phase:
        loaded = load_known(node)
        assert loaded is not None
        return loaded
    kind = ReferenceKind(values["kind"])
    return Loaded(step=read_step(values["text"]), **(dict(values) | {"kind": kind}))
