"""Downloads and unpacks plugins with the agent's registry client and archive reader; errors become those of `fleeting`.

Only this module uses both `fleeting` and `steps`, which do not import each other."""

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
    def __init__(self, reference: Reference) -> None:
        self._registry = Registry(reference.registry, reference.repository, os.environ, threading.Event())

    def manifest(self, reference: str) -> tuple[dict[str, Any], str]:
        with _translate_errors():
            return self._registry.manifest(reference)

    def blob(self, digest: str, size: int, target: Path) -> None:
        with _translate_errors():
            self._registry.blob(digest, size, target)


def unpack(archive: Path, target: Path) -> None:
    with _translate_errors():
        unpack_layers([archive], target)


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except TemporaryResolveError as error:
        raise TemporaryError(str(error)) from error
    except ResolveError as error:
        raise PermanentError(str(error)) from error
