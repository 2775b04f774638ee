"""Coverage: the number that the `coverage` expression of a job finds in its log."""

import pytest

from remuda.cell.pipelines import coverage
from remuda.cell.pipelines.coverage import coverage_in, lines_of, measure_coverage
from remuda.pipeline.rules.regex import TooCostlyError
from remuda.testing.builders import a_spec
from remuda.testing.memory_cell import MemoryCell


@pytest.mark.parametrize(
    ("log", "expression", "expected"),
    [
        ("TOTAL   120   30   75%\n", r"/TOTAL.*? (100(?:\.0+)?\%|[1-9]?\d(?:\.\d+)?\%)$/", 75.0),
        ("Coverage: 10%\nCoverage: 20.5%\nbye\n", r"/Coverage: \d+(?:\.\d+)?/", 20.5),
        ("coverage: 10% coverage: 30%\n", r"/coverage: \d+/", 30.0),
        ("Lines 3 of 4: 75%\n", r"/Lines.*/", 3.0),
        ("Lines: 88%\nLines: none\n", r"/Lines: .*/", 88.0),
        ("\x1b[32mAll files\x1b[0m |  \x1b[1m098.25\x1b[0m |\r\n", r"/All files\s+\|\s+([\d.]+)/", 98.25),
        ("nothing\n", r"/\d+%/", None),
        ("coverage: 5%\n", "no literal", None),
        ("COVERAGE: 5%\n", "/coverage: (.*)/i", 5.0),
        (f"coverage: {'9' * 400}\n", r"/coverage: \d+/", 999999999999999.0),
        ("\ufffd 7%\n", r"/\d+%/", 7.0),
        (
            "2026-01-01T10:00:00.000000Z 01O Total cover\n2026-01-01T10:00:00.000001Z 01O+age: 61%\n",
            r"/Total coverage: (\d+)/",
            61.0,
        ),
    ],
)
def test_coverage_in_a_log(log: str, expression: str, expected: float | None) -> None:
    assert coverage_in(log.encode(), expression) == expected


def test_timestamps_and_colours_are_removed_from_lines() -> None:
    log = "2026-01-01T10:00:00.000000Z 00O \x1b[0Khello\n2026-01-01T10:00:00.000000Z 01E world\nplain"
    assert lines_of(log) == ["hello", "world", "plain"]


def test_an_expression_that_is_too_costly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "MAX_STEPS", 10_000)
    with pytest.raises(TooCostlyError):
        coverage_in(b"a" * 50_000 + b"1a", "/(a*)*[0-9]$/")


async def run_job(cell: MemoryCell, expression: str, log: bytes, state: str = "success") -> int:
    await cell.push(a_spec(coverage=expression))
    job, token = await cell.start()
    await cell.dispatch.runner_calls.append_trace(job, 0, log)
    await cell.put(token, state)
    return job.id


@pytest.mark.parametrize("state", ["success", "failed"])
async def test_a_job_is_measured_when_it_has_ended(cell: MemoryCell, state: str) -> None:
    job_id = await run_job(cell, r"/[\d.]+% done/", b"10% done\n80.5% done\n", state)
    for _ in range(2):
        job = await measure_coverage(cell.store, cell.traces, await cell.job(job_id))
        assert job.coverage == (await cell.job(job_id)).coverage == 80.5


async def test_a_job_without_a_match_does_not_change(cell: MemoryCell) -> None:
    for expression in ("", "/(/", "/x{1000}{1000}/", r"/never\d/"):
        job = await cell.job(await run_job(cell, expression, b"80%\n"))
        assert await measure_coverage(cell.store, cell.traces, job) == job


async def test_a_running_job_is_not_measured(cell: MemoryCell) -> None:
    await cell.push(a_spec(coverage=r"/\d+%/"))
    job, _ = await cell.start()
    await cell.dispatch.runner_calls.append_trace(job, 0, b"50%\n")
    assert await measure_coverage(cell.store, cell.traces, job) == job


async def test_only_the_end_of_a_log_is_searched(cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "TAIL_BYTES", 12)
    job = await cell.job(await run_job(cell, r"/\d+%/", b"10%\nhello world\nbye\n"))
    assert (await measure_coverage(cell.store, cell.traces, job)).coverage is None
