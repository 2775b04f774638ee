"""How much of a job's step results is kept."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.jobs.result_limits import CUT, select_results
from remuda.cell.values import StepResult
from remuda.model.job import JobId


def a_result(number: int, size: int = 10) -> StepResult:
    body = msgspec.json.encode("x" * (size - 2))
    return StepResult(job_id=JobId(1), seq=number, body=msgspec.Raw(body))


def test_in_order_and_without_a_gap() -> None:
    new, following = select_results(None, [a_result(2), a_result(1), a_result(4)], 1000)
    assert ([result.seq for result in new], following) == ([1, 2], 3)
    assert select_results(new[-1], [a_result(1), a_result(2)], 1000) == ([], 3)
    assert select_results(None, [], 1000) == ([], 1)


def test_a_note_takes_the_place_of_the_first_that_is_too_much() -> None:
    new, following = select_results(None, [a_result(number) for number in range(1, 6)], 20)
    assert ([result.seq for result in new], following) == ([1, 2, 3], 6)
    said = msgspec.json.decode(new[2].body)
    assert (said["seq"], said["event"]) == (3, CUT)
    assert "20 bytes" in said["note"]
    assert select_results(new[2], [a_result(6), a_result(9)], 20) == ([], 10), "whatever comes is taken and dropped"
    assert select_results(new[2], [a_result(1)], 20) == ([], 4)


def test_results_from_before_there_was_a_limit_count_for_nothing() -> None:
    old = a_result(7, 5000)
    [new], following = select_results(old, [a_result(8)], 20)
    assert (new.total_bytes, following) == (10, 9)


@given(st.lists(st.integers(2, 40), max_size=30), st.integers(1, 300), st.data())
def test_however_they_come_the_same_is_kept(sizes: list[int], limit: int, data: st.DataObject) -> None:
    """In calls of any size, each perhaps made twice."""
    results = [a_result(number, size) for number, size in enumerate(sizes, 1)]
    whole, _ = select_results(None, results, limit)
    stored: list[StepResult] = []
    at = 0
    while at < len(results):
        many = data.draw(st.integers(1, 5))
        for _ in range(data.draw(st.integers(1, 2))):
            new, following = select_results(stored[-1] if stored else None, results[at : at + many], limit)
            stored += new
            assert following > min(at + many, len(results))
        at += many
    assert stored == whole
    assert sum(len(bytes(result.body)) for result in stored if not result.is_note) <= limit
    assert [result.seq for result in stored] == list(range(1, len(stored) + 1))
