"""How long a failed job is held: the runner's word, and the job's own wish within what the runner allows."""

import pytest

from remuda.manager.compile.hold_on_failure import VARIABLE, hold_of
from remuda.manager.config.values import RemudaConfig
from remuda.wire.agent_client import JobVariable


@pytest.mark.parametrize(
    ("runner", "most", "asked", "seconds", "remark"),
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
def test_hold(runner: str, most: str, asked: str, seconds: int, remark: str) -> None:
    config = RemudaConfig(hold_failed=runner, hold_by_job=most)
    variables = [JobVariable(key=VARIABLE, value=asked)] if asked else []
    hold = hold_of(config, variables, 12, may_shell=True)
    assert hold.seconds == seconds
    assert bool(hold.note) == bool(seconds)
    assert len(hold.remarks) == bool(remark)
    assert remark in "".join(hold.remarks)


def test_nobody_is_held_whom_nobody_could_look_into() -> None:
    assert hold_of(RemudaConfig(hold_failed="30m"), (), 12, may_shell=False).seconds == 0


def test_the_log_says_how_to_get_in() -> None:
    note = hold_of(RemudaConfig(hold_failed="1h30m"), (), 12, may_shell=True).note
    assert "1h30m" in note
    assert "remuda job shell 12" in note
    assert "remuda job release 12" in note
