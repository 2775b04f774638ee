import pytest

from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.retries import TransientError, format_duration, next_wait, patience_seconds, retry

UNREACHABLE = TransientError("gone", unreachable=True)


def list_waits(error: TransientError, patience: float = 600) -> list[float]:
    waits: list[float] = []
    while (wait := next_wait(error, failures=len(waits) + 1, waited=sum(waits), patience=patience)) is not None:
        waits.append(wait)
    return waits


def test_an_unreachable_server_is_retried_until_the_patience_ends() -> None:
    waits = list_waits(UNREACHABLE)
    assert waits[:5] == [1, 2, 4, 8, 10]
    assert max(waits) == 10
    assert sum(waits) == 600


def test_other_transient_errors_are_retried_twice() -> None:
    assert list_waits(TransientError("odd", unreachable=False)) == [1, 2]


def test_retry_after_of_the_server_is_respected_within_limits() -> None:
    assert list_waits(TransientError("busy", unreachable=True, retry_after=7))[:4] == [7, 7, 7, 8]
    assert list_waits(TransientError("busy", unreachable=True, retry_after=7000))[0] == 60
    assert list_waits(TransientError("busy", unreachable=True, retry_after=0))[0] == 1


def test_without_patience_there_is_one_try(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("REMUDA_PATIENCE_SECONDS", "0")
    calls: list[int] = []

    def call(failures: int) -> None:
        calls.append(failures)
        raise UNREACHABLE

    with pytest.raises(PlatformError, match="the download failed for 0 seconds: gone"):
        retry("the download", call)
    assert calls == [0]
    assert capsys.readouterr().out == ""


def test_a_variable_sets_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMUDA_PATIENCE_SECONDS", raising=False)
    assert patience_seconds() == 600
    monkeypatch.setenv("REMUDA_PATIENCE_SECONDS", "5")
    assert patience_seconds() == 5
    monkeypatch.setenv("REMUDA_PATIENCE_SECONDS", "5m")
    with pytest.raises(StepError, match="whole number of seconds"):
        patience_seconds()


def test_durations_are_formatted() -> None:
    assert [format_duration(seconds) for seconds in (0, 12.4, 119, 120, 600)] == [
        "0 seconds",
        "12 seconds",
        "119 seconds",
        "2 minutes",
        "10 minutes",
    ]
