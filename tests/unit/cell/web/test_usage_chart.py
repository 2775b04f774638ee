"""The layout of the chart of demand against capacity."""

from typing import Any

import pytest

from remuda.cell.web.usage_chart import draw_chart


def a_point(running: int | None, waiting: int | None = 0, slots: int | None = 0) -> dict[str, Any]:
    known = running is not None
    return {
        "at": "2030-01-01T00:00:00Z",
        "running": running,
        "waiting": waiting if known else None,
        "slots": slots if known else None,
    }


def test_areas_and_line() -> None:
    chart = draw_chart([a_point(1, 1, 4), a_point(2, 0, 4)], 1800)
    assert (chart.top, chart.hours) == (4, 1)
    assert chart.running == "M0,100 L0,75 L500,75 L500,50 L1000,50 L1000,100 Z"
    assert chart.demand == "M0,100 L0,50 L500,50 L500,50 L1000,50 L1000,100 Z"
    assert chart.slots == "M0,0 L500,0 L500,0 L1000,0"
    assert [number for _, number in chart.lines] == [0, 1, 2, 3, 4]


def test_a_gap_divides_the_areas() -> None:
    chart = draw_chart([a_point(1), a_point(None), a_point(1)], 60)
    assert chart.demand.count("M") == 2
    assert "Z M666.7,100" in chart.demand


def test_without_points_it_is_empty() -> None:
    chart = draw_chart([a_point(None)] * 3, 60)
    assert chart.is_empty
    assert chart.top == 1


@pytest.mark.parametrize(
    ("highest", "top", "lines"), [(1, 1, 2), (7, 8, 5), (13, 15, 4), (99, 100, 3), (100_000, 100_000, 3)]
)
def test_the_scale_has_round_numbers(highest: int, top: int, lines: int) -> None:
    chart = draw_chart([a_point(highest)], 60)
    assert (chart.top, len(chart.lines)) == (top, lines)


def test_the_table_has_few_rows_with_the_highest_values_first() -> None:
    chart = draw_chart([a_point(number) for number in range(120)], 60)
    assert len(chart.rows) == 24
    assert [row["running"] for row in chart.rows[:2]] == [119, 114]
