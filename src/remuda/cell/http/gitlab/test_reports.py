"""The test report of a pipeline in GitLab's form. The encoded response is cached, on disk if it is large, so that the
JUnit files are parsed once for all callers."""

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from remuda.cell.blobs.upload_parsers import KeptAnswer
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.edge.streaming import Streamed
from remuda.cell.http.gitlab.views import View
from remuda.cell.pipelines.test_reports import COST_BYTES, Suite, find_reports, read_suites
from remuda.cell.values import Pipeline
from remuda.cell.values.people import Level
from remuda.wire.junit import JunitLimits, TestCase

DIGEST_FAILED = 200
"""How many failed cases a digest lists."""
DIGEST_SLOWEST = 20
DIGEST_OUTPUT_CHARACTERS = 8000
_BAD_STATUSES = ("failed", "error")
_STATUSES = ("success", "failed", "skipped", "error")


_ROOT = "/api/v4/projects/{id}/pipelines/{pipeline_id}"
routes = Routes()


@routes.get(f"{_ROOT}/test_report", in_project(Level.REPORTER), gives=dict[str, Any])
async def show(edge: Edge, pipeline: Pipeline) -> Response:
    """Show the test report of a pipeline with all test cases."""
    return await _answer(edge, pipeline, _encode_report)


@routes.get(f"{_ROOT}/test_report_summary", in_project(Level.REPORTER), gives=dict[str, Any])
async def summary(edge: Edge, pipeline: Pipeline) -> Response:
    """Show the totals of the test report of a pipeline."""
    return await _answer(edge, pipeline, _encode_summary)


@routes.get(
    "/api/remuda/v1/projects/{id}/pipelines/{pipeline_id}/tests", in_project(Level.REPORTER), gives=dict[str, Any]
)
async def digest(edge: Edge, pipeline: Pipeline) -> Response:
    """Show the failed and the slowest test cases of a pipeline, and the totals of each suite."""
    return await _answer(edge, pipeline, _encode_digest)


async def _answer(edge: Edge, pipeline: Pipeline, encode: Callable[[Sequence[Suite]], bytes]) -> Response:
    """The response with a pipeline's test report in the form of `encode`. Cached by the names of the report files: a
    new upload has a new name, so a report is computed again only after an upload."""
    reports = await find_reports(edge.store, pipeline.id)
    key = ("test report", encode.__name__, tuple((report.job.id, report.artifact.blob) for report in reports))
    settings = edge.settings
    limits = JunitLimits(
        bytes=settings.test_report_limit_bytes,
        depth=settings.test_report_limit_depth,
        elements=settings.test_report_limit_elements,
    )

    async def make() -> KeptAnswer:
        async with edge.parsers.reserve(COST_BYTES):
            suites = await read_suites(
                edge.blobs,
                edge.parsers,
                reports,
                limits=limits,
                total_bytes=settings.test_report_total_limit_bytes,
                with_cases=encode is not _encode_summary,
            )
            return await edge.parsers.keep(await edge.parsers.run(encode, suites))

    answer = await edge.parsers.answers.find(key, make)
    return Streamed(answer.pieces(), 200, {"Content-Length": str(answer.size)}, "application/json")


def _encode_report(suites: Sequence[Suite]) -> bytes:
    test_suites = [
        {**_counts(suite), "suite_error": suite.error, "test_cases": [_case(case) for case in suite.cases]}
        for suite in suites
    ]
    counts = [_counts(suite) for suite in suites]
    names = ("total_time", "total_count", "success_count", "failed_count", "skipped_count", "error_count")
    return msgspec.json.encode(
        {**{name: sum(suite_counts[name] for suite_counts in counts) for name in names}, "test_suites": test_suites}
    )


def _encode_summary(suites: Sequence[Suite]) -> bytes:
    test_suites = [{**_counts(suite), "build_ids": suite.job_ids, "suite_error": suite.error} for suite in suites]
    total: View = {name: sum(suite.statuses[name] for suite in suites) for name in _STATUSES}
    total |= {
        "time": round(sum(suite.seconds for suite in suites), 6),
        "count": sum(suite.statuses.total() for suite in suites),
        "suite_error": next((suite.error for suite in suites if suite.error), None),
    }
    return msgspec.json.encode({"total": total, "test_suites": test_suites})


def _encode_digest(suites: Sequence[Suite]) -> bytes:
    cases = [(suite, case) for suite in suites for case in suite.cases]
    failed = [entry for entry in cases if entry[1].status in _BAD_STATUSES]
    slowest = heapq.nlargest(DIGEST_SLOWEST, cases, key=lambda entry: entry[1].seconds)
    return msgspec.json.encode(
        {
            "suites": [{**_counts(suite), "job_ids": suite.job_ids, "suite_error": suite.error} for suite in suites],
            "failed": [_digest_case(*entry) for entry in failed[:DIGEST_FAILED]],
            "failed_not_listed": max(len(failed) - DIGEST_FAILED, 0),
            "slowest": [_digest_case(suite, case) for suite, case in slowest if case.seconds > 0],
        }
    )


def _digest_case(suite: Suite, case: TestCase) -> View:
    output = case.output or ""
    is_cut = len(output) > DIGEST_OUTPUT_CHARACTERS
    return {
        **_case(case),
        "suite": suite.name,
        "system_output": output[:DIGEST_OUTPUT_CHARACTERS] + ("\n..." if is_cut else ""),
    }


def _counts(suite: Suite) -> View:
    return {
        "name": suite.name,
        "total_time": round(suite.seconds, 6),
        "total_count": suite.statuses.total(),
        "success_count": suite.statuses["success"],
        "failed_count": suite.statuses["failed"],
        "skipped_count": suite.statuses["skipped"],
        "error_count": suite.statuses["error"],
    }


def _case(case: TestCase) -> View:
    return {
        "status": case.status,
        "name": case.name,
        "classname": case.classname,
        "file": case.file,
        "execution_time": case.seconds,
        "system_output": case.output,
        "stack_trace": None,
    }
