"""`remuda job log --follow` while the cell cannot be reached."""

from typing import Any, cast

import pytest

from remuda.cli.job import log
from remuda.wire.user_client import TracePart, UserApiError, UserClient


class RestartingCell:
    """A client that answers each request for the log with the next of `answers`."""

    def __init__(self, *answers: TracePart | UserApiError) -> None:
        self.answers = list(answers)

    async def trace(self, *_: Any) -> TracePart:
        answer = self.answers.pop(0)
        if isinstance(answer, UserApiError):
            raise answer
        return answer


AWAY = UserApiError("cannot reach the cell")
EMPTY = TracePart(data=b"", state="pending")
END = TracePart(data=b"hello\n", state="success")


async def follow(*answers: TracePart | UserApiError) -> None:
    await log._copy_log(cast("UserClient", RestartingCell(*answers)), 7, follow=True, raw=True)


async def test_an_empty_log_is_followed_over_a_restart_of_the_cell(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(log, "FOLLOW_SECONDS", 0.0)
    await follow(EMPTY, AWAY, AWAY, END)
    captured = capsysbinary.readouterr()
    assert captured.out == b"hello\n"
    assert captured.err.count(b"trying again") == 1


async def test_a_cell_that_cannot_be_reached_at_first_is_an_error() -> None:
    with pytest.raises(UserApiError):
        await follow(AWAY, END)
