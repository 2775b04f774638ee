"""`Timeline`: the time without the jumps of a wall clock that is set."""

import time

from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.clock import LARGEST_JUMP_SECONDS, SLEW, SystemClock, Timeline

WALL, BOOT = 1_750_000_000.0, 5000.0


def test_elapsed_time_is_right_though_the_wall_clock_is_set() -> None:
    for jump in (7200.0, -7200.0):
        timeline = Timeline(WALL, BOOT)
        assert timeline.now(WALL + jump, BOOT) == WALL
        elapsed = timeline.now(WALL + jump + 600, BOOT + 600) - WALL
        assert abs(elapsed - 600) <= 600 * SLEW + 1e-6


def test_the_timeline_catches_up_with_the_wall_clock_slowly() -> None:
    timeline, jump = Timeline(WALL, BOOT), 60.0
    seconds = 0.0
    while timeline.now(WALL + jump + seconds, BOOT + seconds) < WALL + jump + seconds:
        seconds += 10.0
    assert seconds == jump / SLEW


def test_a_jump_of_years_is_taken_over_at_once() -> None:
    timeline = Timeline(1000.0, BOOT)
    assert timeline.now(WALL, BOOT + 1) == WALL


def test_small_corrections_of_a_time_server_are_followed() -> None:
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
def test_the_timeline_never_goes_back(steps: list[tuple[float, float]]) -> None:
    timeline, wall, boot, last = Timeline(WALL, BOOT), WALL, BOOT, WALL
    for passed, jump in steps:
        boot, wall = boot + passed, wall + passed + jump
        now = timeline.now(wall, boot)
        assert now >= last - 1e-3
        last = now


def test_the_system_clock_uses_one_timeline() -> None:
    first = SystemClock().now()
    second = SystemClock().now()
    assert 0 <= second - first < 60
    assert abs(first - time.time()) < 60
