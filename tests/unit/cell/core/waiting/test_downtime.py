"""Outages of the cell, and their effect on time limits."""

import math

from remuda.cell.core.waiting.downtime import Outage, latest_end, with_outage


def test_a_limit_ends_after_three_times_its_length_without_outages() -> None:
    assert latest_end(100.0, 10.0, ()) == 130.0
    assert latest_end(100.0, 10.0, None) == math.inf
    assert latest_end(100.0, 10.0, (Outage(50.0, 90.0),)) == 130.0
    assert latest_end(100.0, 10.0, (Outage(90.0, 105.0), Outage(110.0, 140.0))) == 165.0
    assert latest_end(100.0, 10.0, (Outage(130.0, 200.0),)) == 130.0


def test_frequent_restarts_do_not_extend_a_limit_without_bound() -> None:
    outages = tuple(Outage(start, start + 3.0) for start in range(100, 1000, 5))
    assert latest_end(100.0, 60.0, outages) == 100.0 + 180.0 / 2 * 5 - 3 + 3


def test_short_and_old_outages_are_omitted() -> None:
    outages = (Outage(0.0, 10.0), Outage(80.0, 90.0))
    assert with_outage(outages, Outage(100.0, 101.0), kept_seconds=50) == outages
    assert with_outage(outages, Outage(100.0, 110.0), kept_seconds=50) == (Outage(80.0, 90.0), Outage(100.0, 110.0))


def test_overlapping_outages_are_merged() -> None:
    outages = (Outage(0.0, 10.0), Outage(20.0, 30.0), Outage(40.0, 50.0))
    assert with_outage(outages, Outage(20.0, 35.0), kept_seconds=500) == (outages[0], Outage(20.0, 35.0), outages[2])
    assert with_outage(outages, Outage(5.0, 60.0), kept_seconds=500) == (Outage(0.0, 60.0),)
    assert with_outage(outages, Outage(50.0, 60.0), kept_seconds=500) == (*outages, Outage(50.0, 60.0))
