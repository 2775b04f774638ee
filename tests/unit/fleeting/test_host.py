"""Errors on the host's side while a plugin starts."""

import asyncio

import pytest

from remuda.fleeting import Settings, TemporaryError, host
from remuda.fleeting.host import HostedGroup
from remuda.lib.clock import VirtualClock


async def test_an_internal_error_fails_the_start_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str) -> str:
        raise ValueError("an odd name")

    monkeypatch.setattr(host, "find_program", fail)
    group = HostedGroup("odd", clock=VirtualClock())
    with pytest.raises(TemporaryError, match="cannot be started: ValueError: an odd name"):
        await asyncio.shield(group.init({}, Settings()))
    await group.close()
