"""The limit of stored step results of a job."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.jobs.result_limits import CUT, select_results
from remuda.cell.values import StepResult
from remuda.model.job import JobId


def a_result(number: int, size: int = 10) -> StepResult:
    body = msgspec.json.encode("x" * (size - 2))
    return StepResult(job_id=JobId(1), seq=number, body=msgspec.Raw(body))


def test_results_are_stored_in_order_without_gaps() -> None:
    new, following = select_results(None, [a_result(2), a_result(1), a_result(4)], 1000)
    assert ([result.seq for result in new], following) == ([1, 2], 3)
    assert select_results(new[-1], [a_result(1), a_result(2)], 1000) == ([], 3)
    assert select_results(None, [], 1000) == ([], 1)


def test_a_note_replaces_the_first_result_beyond_the_limit() -> None:
    new, following = select_results(None, [a_result(number) for number in range(1, 6)], 20)
    assert ([result.seq for result in new], following) == ([1, 2, 3], 6)
    note = msgspec.json.decode(new[2].body)
    assert (note["seq"], note["event"]) == (3, CUT)
    assert "20 bytes" in note["note"]
    assert select_results(new[2], [a_result(6), a_result(9)], 20) == ([], 10), "later results are accepted and dropped"
    assert select_results(new[2], [a_result(1)], 20) == ([], 4)


def test_results_of_a_release_without_a_limit_do_not_count() -> None:
    old = a_result(7, 5000)
    [new], following = select_results(old, [a_result(8)], 20)
    assert (new.total_bytes, following) == (10, 9)


@given(st.lists(st.integers(2, 40), max_size=30), st.integers(1, 300), st.data())
def test_the_stored_results_do_not_depend_on_the_calls(sizes: list[int], limit: int, data: st.DataObject) -> None:
    """The results come in calls of any size, and any call may be repeated."""
    results = [a_result(number, size) for number, size in enumerate(sizes, 1)]
    expected, _ = select_results(None, results, limit)
    stored: list[StepResult] = []
    offset = 0
    while offset < len(results):
        count = data.draw(st.integers(1, 5))
        for _ in range(data.draw(st.integers(1, 2))):
            new, following = select_results(stored[-1] if stored else None, results[offset : offset + count], limit)
            stored += new
            assert following > min(offset + count, len(results))
        offset += count
    assert stored == expected
    assert sum(len(bytes(result.body)) for result in stored if not result.is_note) <= limit
    assert [result.seq for result in stored] == list(range(1, len(stored) + 1))
