import pytest

from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.retries import TransientError, format_duration, next_wait, patience_seconds, retry

AWAY = TransientError("gone", unreachable=True)


def waits(error: TransientError, patience: float = 600) -> list[float]:
    found: list[float] = []
    while (wait := next_wait(error, failures=len(found) + 1, waited=sum(found), patience=patience)) is not None:
        found.append(wait)
    return found


def test_a_server_that_is_away_is_waited_for() -> None:
    found = waits(AWAY)
    assert found[:5] == [1, 2, 4, 8, 10]
    assert max(found) == 10
    assert sum(found) == 600


def test_other_trouble_gets_a_few_tries() -> None:
    assert waits(TransientError("odd", unreachable=False)) == [1, 2]


def test_the_server_says_how_long_to_wait() -> None:
    assert waits(TransientError("busy", unreachable=True, retry_after=7))[:4] == [7, 7, 7, 8]
    assert waits(TransientError("busy", unreachable=True, retry_after=7000))[0] == 60
    assert waits(TransientError("busy", unreachable=True, retry_after=0))[0] == 1


def test_no_patience_means_one_try(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("REMUDA_PATIENCE_SECONDS", "0")
    calls: list[int] = []

    def call(failures: int) -> None:
        calls.append(failures)
        raise AWAY

    with pytest.raises(PlatformError, match="looking failed for 0 seconds: gone"):
        retry("looking", call)
    assert calls == [0]
    assert capsys.readouterr().out == ""


def test_how_long_is_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMUDA_PATIENCE_SECONDS", raising=False)
    assert patience_seconds() == 600
    monkeypatch.setenv("REMUDA_PATIENCE_SECONDS", "5")
    assert patience_seconds() == 5
    monkeypatch.setenv("REMUDA_PATIENCE_SECONDS", "5m")
    with pytest.raises(StepError, match="whole number of seconds"):
        patience_seconds()


def test_times_in_words() -> None:
    assert [format_duration(seconds) for seconds in (0, 12.4, 119, 120, 600)] == [
        "0 seconds",
        "12 seconds",
        "119 seconds",
        "2 minutes",
        "10 minutes",
    ]
