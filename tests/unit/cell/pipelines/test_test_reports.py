"""The limits of a pipeline's test report: cases, output, and bytes of one report and of all reports."""

from collections.abc import AsyncIterator

from remuda.cell.blobs.upload_parsers import Parsers
from remuda.cell.pipelines import test_reports
from remuda.cell.values import Job
from remuda.testing.builders import a_spec, an_artifact
from remuda.testing.memory_cell import MemoryCell
from remuda.wire.junit import JunitLimits


async def generate_report(count: int, output: bytes) -> AsyncIterator[bytes]:
    yield b"<testsuite>"
    for _ in range(count):
        yield b'<testcase name="a" time="1"><failure>' + output + b"</failure></testcase>"
    yield b"</testsuite>"


async def run_job_with_report(cell: MemoryCell, count: int, output: bytes) -> Job:
    await cell.push(a_spec("test"))
    job, _ = await cell.start()
    size, sha256 = await cell.blobs.put("report", generate_report(count, output), limit_bytes=10**9)
    await cell.store.jobs.put_artifact(
        an_artifact(job.id, "junit", format="raw", filename="junit.xml", size=size, sha256=sha256, blob="report")
    )
    return job


async def read_suites(
    cell: MemoryCell, job: Job, *, limit_bytes: int = 10**9, total_bytes: int = 10**9, with_cases: bool = True
) -> list[test_reports.Suite]:
    parsers = Parsers(memory_bytes=1)
    try:
        return await test_reports.read_suites(
            cell.blobs,
            parsers,
            await test_reports.find_reports(cell.store, job.pipeline_id),
            limits=JunitLimits(bytes=limit_bytes),
            total_bytes=total_bytes,
            with_cases=with_cases,
        )
    finally:
        parsers.close()


async def test_all_cases_are_counted_and_a_limited_number_is_listed() -> None:
    cell = await MemoryCell.open()
    job = await run_job_with_report(cell, test_reports.LISTED_CASES + 5, b"no")
    for with_cases in (True, False):
        [suite] = await read_suites(cell, job, with_cases=with_cases)
        assert suite.statuses == {"failed": test_reports.LISTED_CASES + 5}
        assert suite.seconds == test_reports.LISTED_CASES + 5
        assert len(suite.cases) == (test_reports.LISTED_CASES if with_cases else 0)
        assert (suite.error is not None) is with_cases


async def test_the_output_of_cases_is_limited() -> None:
    cell = await MemoryCell.open()
    output_bytes = 16 * 1024
    job = await run_job_with_report(cell, test_reports.LISTED_BYTES // output_bytes + 5, b"x" * output_bytes)
    [suite] = await read_suites(cell, job)
    assert sum(case.output is None for case in suite.cases) == 6  # the names use the bytes of one output
    assert suite.error is None


async def test_a_report_that_is_too_large_or_gone_is_an_error_of_its_suite() -> None:
    cell = await MemoryCell.open()
    job = await run_job_with_report(cell, 10, b"no")
    [suite] = await read_suites(cell, job, limit_bytes=100)
    assert suite.error == "JUnit XML parsing failed: it is larger than 100 bytes"
    await cell.blobs.remove("report")
    [suite] = await read_suites(cell, job, limit_bytes=100)
    assert suite.error == "the report is gone"


async def test_the_total_size_of_the_reports_of_a_pipeline_is_limited() -> None:
    cell = await MemoryCell.open()
    job = await run_job_with_report(cell, 10, b"no")
    [report] = await test_reports.find_reports(cell.store, job.pipeline_id)
    parsers = Parsers(memory_bytes=1)
    [suite] = await test_reports.read_suites(
        cell.blobs,
        parsers,
        [report, report],
        limits=JunitLimits(bytes=10**6),
        total_bytes=100,
        with_cases=True,
    )
    parsers.close()
    assert suite.statuses.total() == 10
    assert suite.error == "the reports of the pipeline are larger than 100 bytes together; not all are read"
