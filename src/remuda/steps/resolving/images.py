"""Step packages in container images: chooses one image of an index (multi-platform image), and unpacks its layers.

The image for this machine's platform is used, else the one for the system `generic`. `find_image` and `pull` block."""

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remuda.steps.resolving.errors import ResolveError
from remuda.steps.resolving.layers import unpack_layers
from remuda.steps.resolving.registry import Registry
from remuda.steps.resolving.values import LARGEST_BYTES

GENERIC = "generic"
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "i686": "386", "i386": "386"}
_MOST_INDEXES = 2
"""How many nested indexes may lead to the manifest of an image."""


def host_platform() -> str:
    system, machine = platform.system().lower(), platform.machine().lower()
    name = _MACHINES.get(machine) or ("arm" if machine.startswith("arm") else machine)
    return f"{system}/{name}"


def choose_image(manifests: Sequence[dict[str, Any]], host: str, shown: str) -> dict[str, Any]:
    """Return the manifest for the platform `host`, else for `generic`. Raises ResolveError if there is neither."""
    platforms = [entry.get("platform") or {} for entry in manifests]
    names = [f"{entry_platform.get('os', '')}/{entry_platform.get('architecture', '')}" for entry_platform in platforms]
    fitting = [entry for entry, name in zip(manifests, names, strict=True) if name == host]
    fitting += [
        entry for entry, entry_platform in zip(manifests, platforms, strict=True) if entry_platform.get("os") == GENERIC
    ]
    if not fitting:
        listed = ", ".join(sorted(set(names))) or "none"
        raise ResolveError(f"{shown} has no image for {host}, nor one for the system {GENERIC}; it has {listed}")
    return fitting[0]


def find_image(registry: Registry, reference: str, host: str) -> tuple[dict[str, Any], str]:
    for _ in range(_MOST_INDEXES + 1):
        document, digest = registry.manifest(reference)
        entries = document.get("manifests")
        if not isinstance(entries, list):
            return document, digest
        try:
            reference = str(choose_image(entries, host, f"{registry.name} {reference}")["digest"])
        except (KeyError, AttributeError):
            raise ResolveError(f"{registry.name}: the index under {reference} is damaged") from None
    raise ResolveError(f"{registry.name}: more than {_MOST_INDEXES} nested indexes")


def pull(registry: Registry, manifest: dict[str, Any], folder: Path, target: Path) -> None:
    try:
        layers = [(str(layer["digest"]), int(layer["size"])) for layer in manifest["layers"]]
    except (KeyError, TypeError, ValueError):
        raise ResolveError(f"{registry.name}: the manifest lists no layers; is it an image?") from None
    total = sum(size for _, size in layers)
    if total > LARGEST_BYTES or any(size < 0 for _, size in layers):
        raise ResolveError(f"{registry.name}: the image has {total} bytes, a step package has at most {LARGEST_BYTES}")
    files: list[Path] = []
    for number, (digest, size) in enumerate(layers):
        files.append(folder / f"layer-{number}")
        registry.blob(digest, size, files[-1])
    unpack_layers(files, target)
