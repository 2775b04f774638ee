"""How long a failed job is on hold: the runner's setting, and the job's variable within the runner's maximum."""

import pytest

from remuda.manager.compile.hold_on_failure import VARIABLE, hold_of
from remuda.manager.config.values import RemudaConfig
from remuda.wire.agent_client import JobVariable


@pytest.mark.parametrize(
    ("runner", "maximum", "requested", "seconds", "remark"),
    [
        ("", "", "", 0, ""),
        ("30m", "", "", 1800, ""),
        ("30m", "", "10m", 600, ""),
        ("30m", "", "2h", 1800, "does not let jobs ask for a longer hold"),
        ("", "", "10m", 0, "does not let jobs ask for a longer hold"),
        ("", "1h", "", 0, ""),
        ("", "1h", "20m", 1200, ""),
        ("", "1h", "2h", 3600, "at most 1h"),
        ("30m", "1h", "45m", 2700, ""),
        ("30m", "1h", "0", 0, ""),
        ("30m", "10m", "45m", 1800, "at most 10m"),
        ("30m", "1h", "soon", 1800, "is not a duration"),
        ("30m", "1h", "-5", 1800, "is not a duration"),
    ],
)
def test_duration_of_the_hold(runner: str, maximum: str, requested: str, seconds: int, remark: str) -> None:
    config = RemudaConfig(hold_failed=runner, hold_by_job=maximum)
    variables = [JobVariable(key=VARIABLE, value=requested)] if requested else []
    hold = hold_of(config, variables, 12, may_shell=True)
    assert hold.seconds == seconds
    assert bool(hold.note) == bool(seconds)
    assert len(hold.remarks) == bool(remark)
    assert remark in "".join(hold.remarks)


def test_no_hold_without_shells() -> None:
    assert hold_of(RemudaConfig(hold_failed="30m"), (), 12, may_shell=False).seconds == 0


def test_the_note_in_the_log_names_the_commands() -> None:
    note = hold_of(RemudaConfig(hold_failed="1h30m"), (), 12, may_shell=True).note
    assert "1h30m" in note
    assert "remuda job shell 12" in note
    assert "remuda job release 12" in note
