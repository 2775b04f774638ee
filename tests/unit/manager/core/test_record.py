"""Which changes of a job's record are written to the journal."""

import pytest
from msgspec.structs import replace

from remuda.manager.core.record import AGAIN_BYTES, AGAIN_SECONDS, Outcome, Phase, Record, again_bytes

STARTED = Record(phase=Phase.STARTED, log_offset=10, log_crc=3, result_seq=2, machine="local")
ENDED = replace(STARTED, phase=Phase.ENDED, outcome=Outcome(state="success", log_bytes=50))


@pytest.mark.parametrize(
    ("before", "after", "is_stored"),
    [
        (STARTED, STARTED, False),
        (STARTED, replace(STARTED, log_offset=11, result_seq=7), False),
        (STARTED, replace(STARTED, log_offset=STARTED.log_offset + AGAIN_BYTES), True),
        (STARTED, replace(STARTED, cancel_told=True), True),
        (replace(STARTED, phase=Phase.ACKNOWLEDGED), STARTED, True),
        (STARTED, ENDED, True),
        (ENDED, ENDED, False),
        (ENDED, replace(ENDED, log_offset=50, log_crc=9, result_seq=7), False),
        (ENDED, replace(ENDED, log_offset=ENDED.log_offset + AGAIN_BYTES), True),
        (ENDED, replace(ENDED, log_offset=50, cancel_told=True), True),
        (ENDED, replace(ENDED, outcome=Outcome(state="failed")), True),
        (ENDED, replace(ENDED, phase=Phase.ON_HOLD), True),
        (ENDED, replace(ENDED, log_offset=50, phase=Phase.OVER), True),
    ],
)
def test_changes_that_a_new_process_needs_are_stored(before: Record, after: Record, is_stored: bool) -> None:
    assert after.is_worth_storing(before) is is_stored


def test_small_changes_are_stored_after_a_time_or_a_part_of_the_agents_buffer() -> None:
    after = replace(STARTED, log_offset=STARTED.log_offset + 100)
    assert not after.is_worth_storing(STARTED, seconds=AGAIN_SECONDS - 1)
    assert after.is_worth_storing(STARTED, seconds=AGAIN_SECONDS)
    assert not STARTED.is_worth_storing(STARTED, seconds=AGAIN_SECONDS)
    assert after.is_worth_storing(STARTED, again_bytes=100)
    assert not after.is_worth_storing(STARTED, again_bytes=101)
    assert (again_bytes(400), again_bytes(0), again_bytes(-1), again_bytes(1 << 30)) == (100, *[AGAIN_BYTES] * 3)
