import math

from remuda.cell.core.waiting.downtime import Outage, latest_end, with_outage


def test_a_limit_ends_after_three_times_its_length_in_which_the_cell_could_hear() -> None:
    assert latest_end(100.0, 10.0, ()) == 130.0
    assert latest_end(100.0, 10.0, None) == math.inf
    assert latest_end(100.0, 10.0, (Outage(50.0, 90.0),)) == 130.0
    assert latest_end(100.0, 10.0, (Outage(90.0, 105.0), Outage(110.0, 140.0))) == 165.0
    assert latest_end(100.0, 10.0, (Outage(130.0, 200.0),)) == 130.0


def test_restarts_every_few_seconds_do_not_put_it_off_for_ever() -> None:
    outages = tuple(Outage(at, at + 3.0) for at in range(100, 1000, 5))
    assert latest_end(100.0, 60.0, outages) == 100.0 + 180.0 / 2 * 5 - 3 + 3


def test_short_and_old_outages_are_left_out() -> None:
    known = (Outage(0.0, 10.0), Outage(80.0, 90.0))
    assert with_outage(known, Outage(100.0, 101.0), kept_seconds=50) == known
    assert with_outage(known, Outage(100.0, 110.0), kept_seconds=50) == (Outage(80.0, 90.0), Outage(100.0, 110.0))


def test_outages_that_overlap_are_one() -> None:
    known = (Outage(0.0, 10.0), Outage(20.0, 30.0), Outage(40.0, 50.0))
    assert with_outage(known, Outage(20.0, 35.0), kept_seconds=500) == (known[0], Outage(20.0, 35.0), known[2])
    assert with_outage(known, Outage(5.0, 60.0), kept_seconds=500) == (Outage(0.0, 60.0),)
    assert with_outage(known, Outage(50.0, 60.0), kept_seconds=500) == (*known, Outage(50.0, 60.0))
