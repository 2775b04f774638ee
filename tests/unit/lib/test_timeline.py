"""Wall time without jumps."""

import time

from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.clock import LARGEST_JUMP_SECONDS, SLEW, SystemClock, Timeline

WALL, BOOT = 1_750_000_000.0, 5000.0


def test_a_clock_that_is_set_changes_no_time_that_passes() -> None:
    for jump in (7200.0, -7200.0):
        timeline = Timeline(WALL, BOOT)
        assert timeline.now(WALL + jump, BOOT) == WALL
        elapsed = timeline.now(WALL + jump + 600, BOOT + 600) - WALL
        assert abs(elapsed - 600) <= 600 * SLEW + 1e-6


def test_it_is_caught_up_with_slowly() -> None:
    timeline, jump = Timeline(WALL, BOOT), 60.0
    seconds = 0.0
    while timeline.now(WALL + jump + seconds, BOOT + seconds) < WALL + jump + seconds:
        seconds += 10.0
    assert seconds == jump / SLEW


def test_a_clock_that_was_never_set_is_taken_over() -> None:
    timeline = Timeline(1000.0, BOOT)
    assert timeline.now(WALL, BOOT + 1) == WALL


def test_what_a_time_server_corrects_little_by_little_is_followed() -> None:
    timeline = Timeline(WALL, BOOT)
    for second in range(1, 100):
        assert timeline.now(WALL + second * 1.0005, BOOT + second) == WALL + second * 1.0005


@given(
    st.lists(
        st.tuples(
            st.floats(0, 3600),
            st.floats(-LARGEST_JUMP_SECONDS / 100, LARGEST_JUMP_SECONDS / 100),
        ),
        max_size=40,
    )
)
def test_it_never_goes_back(steps: list[tuple[float, float]]) -> None:
    timeline, wall, boot, last = Timeline(WALL, BOOT), WALL, BOOT, WALL
    for passed, jump in steps:
        boot, wall = boot + passed, wall + passed + jump
        now = timeline.now(wall, boot)
        assert now >= last - 1e-3
        last = now


def test_the_machine_has_one() -> None:
    first = SystemClock().now()
    second = SystemClock().now()
    assert 0 <= second - first < 60
    assert abs(first - time.time()) < 60
