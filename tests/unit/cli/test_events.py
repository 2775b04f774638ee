"""`remuda events` while the cell is away."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from remuda.cli import events
from remuda.wire.user_client import EventInfo, RefusedError, UserApiError, UserClient


class AwayForAWhile:
    """A cell that tells one event, cannot be reached three times, and then knows the token no more."""

    def __init__(self) -> None:
        self.calls = 0

    async def events(self, **_: Any) -> AsyncIterator[EventInfo]:
        self.calls += 1
        if self.calls == 1:
            yield EventInfo(id="a-1", kind="runner", data={"id": 1, "description": "x\x1b[2J", "status": "online"})
        elif self.calls < 5:
            raise UserApiError("cannot reach the cell")
        else:
            raise RefusedError("401 Unauthorized", 401)


async def test_that_the_cell_is_away_is_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "RETRY_SECONDS", 0.0)
    client = AwayForAWhile()
    with pytest.raises(RefusedError):
        await events._follow(cast("UserClient", client), {}, as_json=False)
    shown = capsys.readouterr()
    assert shown.out.endswith("runner   1  online  x\\x1b[2J\n")
    assert shown.err.count("trying again") == 1
