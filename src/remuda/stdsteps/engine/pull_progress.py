"""Sums up the engine's messages about a pull: how many layers are there, and how many bytes of those downloaded now.
Its own module, because it calls no engine, unlike `images`."""

from collections.abc import Mapping
from typing import Any

from remuda.stdsteps.common.sizes import format_size

_DONE = ("Pull complete", "Already exists")


class PullProgress:
    def __init__(self) -> None:
        self._is_done: dict[str, bool] = {}
        self._bytes: dict[str, tuple[int, int]] = {}

    def add(self, message: Mapping[str, Any]) -> None:
        status, layer = str(message.get("status") or ""), message.get("id")
        if not layer or status.startswith("Pulling from "):  # there the id is the tag
            return
        self._is_done[layer] = self._is_done.get(layer, False) or status in _DONE
        detail = message.get("progressDetail") or {}
        if status == "Downloading" and detail.get("total"):
            self._bytes[layer] = int(detail.get("current") or 0), int(detail["total"])
        elif layer in self._bytes:
            self._bytes[layer] = self._bytes[layer][1], self._bytes[layer][1]

    def __str__(self) -> str:
        layers = f"{sum(self._is_done.values())} of {len(self._is_done)} layers"
        current, total = (sum(each[number] for each in self._bytes.values()) for number in (0, 1))
        return f"{layers}, {format_size(current)} of {format_size(total)}" if total else layers
