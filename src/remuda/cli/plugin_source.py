"""Artifacts of plugins over the registry client and the archive reader of the steps, with fleeting's errors.

Both are the agent's, hardened there against what a registry or an archive may say; nothing is decided here.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.references import Reference
from remuda.steps.resolving.errors import ResolveError, TemporaryResolveError
from remuda.steps.resolving.layers import unpack_layers
from remuda.steps.resolving.registry import Registry


class RegistrySource:
    """A plugin's repository."""

    def __init__(self, reference: Reference) -> None:
        self._registry = Registry(reference.registry, reference.repository, os.environ, threading.Event())

    def manifest(self, reference: str) -> tuple[dict[str, Any], str]:
        with _translated():
            return self._registry.manifest(reference)

    def blob(self, digest: str, size: int, target: Path) -> None:
        with _translated():
            self._registry.blob(digest, size, target)


def unpack(archive: Path, target: Path) -> None:
    """An archive into a new folder."""
    with _translated():
        unpack_layers([archive], target)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except TemporaryResolveError as error:
        raise TemporaryError(str(error)) from error
    except ResolveError as error:
        raise PermanentError(str(error)) from error
