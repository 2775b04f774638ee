"""What of a job is worth a write to the journal."""

import pytest
from msgspec.structs import replace

from remuda.manager.core.record import AGAIN_BYTES, Outcome, Phase, Record

STARTED = Record(phase=Phase.STARTED, log_offset=10, log_crc=3, result_seq=2, machine="local")
ENDED = replace(STARTED, phase=Phase.ENDED, outcome=Outcome(state="success", log_bytes=50))


@pytest.mark.parametrize(
    ("before", "after", "worth"),
    [
        (STARTED, STARTED, False),
        (STARTED, replace(STARTED, log_offset=11), True),
        (STARTED, ENDED, True),
        (ENDED, ENDED, False),
        (ENDED, replace(ENDED, log_offset=50, log_crc=9, result_seq=7), False),
        (ENDED, replace(ENDED, log_offset=ENDED.log_offset + AGAIN_BYTES), True),
        (ENDED, replace(ENDED, log_offset=50, cancel_told=True), True),
        (ENDED, replace(ENDED, outcome=Outcome(state="failed")), True),
        (ENDED, replace(ENDED, phase=Phase.HELD), True),
        (ENDED, replace(ENDED, log_offset=50, phase=Phase.OVER), True),
    ],
)
def test_what_a_new_process_should_know_is_stored(before: Record, after: Record, worth: bool) -> None:
    assert after.is_worth_storing(before) is worth
