import threading
from typing import Any

import pytest

from remuda.steps.resolving.errors import ResolveError
from remuda.steps.resolving.images import find_image
from remuda.steps.resolving.registry import Registry

HOST = "linux/amd64"


class NestedRegistry(Registry):
    """A registry with an image behind a number of nested indexes."""

    def __init__(self, indexes: int) -> None:
        super().__init__("host", "x", {}, threading.Event())
        self._indexes = indexes

    def manifest(self, reference: str) -> tuple[dict[str, Any], str]:
        number = int(reference)
        if number == self._indexes:
            return {"layers": []}, reference
        entry = {"digest": str(number + 1), "platform": {"os": "linux", "architecture": "amd64"}}
        return {"manifests": [entry]}, reference


@pytest.mark.parametrize("indexes", [0, 1, 2])
def test_an_image_behind_nested_indexes_is_found(indexes: int) -> None:
    assert find_image(NestedRegistry(indexes), "0", HOST) == ({"layers": []}, str(indexes))


def test_an_image_behind_too_many_indexes_is_refused() -> None:
    with pytest.raises(ResolveError, match="more than 2 nested indexes"):
        find_image(NestedRegistry(3), "0", HOST)
