"""The test report of a pipeline in GitLab's form. What it says is decided by `remuda.cell.reports`."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.access import in_project
from remuda.cell.http.edge import Edge, Endpoint
from remuda.cell.http.errors import json_answer
from remuda.cell.http.lookup import pipeline_in_path
from remuda.cell.http.views import View
from remuda.cell.people import Level
from remuda.cell.reports import Suite, suites_of
from remuda.wire.junit import TestCase


async def show(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/pipelines/:pipeline_id/test_report."""
    suites = await _suites(edge, request, with_cases=True)
    told = [
        {**_counts(suite), "suite_error": suite.error, "test_cases": [_case(case) for case in suite.cases]}
        for suite in suites
    ]
    counts = [_counts(suite) for suite in suites]
    names = ("total_time", "total_count", "success_count", "failed_count", "skipped_count", "error_count")
    return json_answer({**{name: sum(one[name] for one in counts) for name in names}, "test_suites": told})


async def summary(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/pipelines/:pipeline_id/test_report_summary."""
    suites = await _suites(edge, request, with_cases=False)
    told = [{**_counts(suite), "build_ids": suite.job_ids, "suite_error": suite.error} for suite in suites]
    total: View = {
        name: sum(suite.statuses[status] for suite in suites)
        for name, status in (("success", "success"), ("failed", "failed"), ("skipped", "skipped"), ("error", "error"))
    }
    total |= {
        "time": round(sum(suite.seconds for suite in suites), 6),
        "count": sum(suite.statuses.total() for suite in suites),
        "suite_error": next((suite.error for suite in suites if suite.error), None),
    }
    return json_answer({"total": total, "test_suites": told})


async def _suites(edge: Edge, request: Request, *, with_cases: bool) -> list[Suite]:
    pipeline, _ = await pipeline_in_path(edge, request)
    limit = edge.settings.test_report_limit_bytes
    return await suites_of(edge.store, edge.blobs, pipeline.id, limit_bytes=limit, with_cases=with_cases)


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


_ROOT = "/api/v4/projects/{id}/pipelines/{pipeline_id}"

ENDPOINTS = (
    Endpoint("GET", f"{_ROOT}/test_report", show, in_project(Level.REPORTER), gives=dict[str, Any]),
    Endpoint("GET", f"{_ROOT}/test_report_summary", summary, in_project(Level.REPORTER), gives=dict[str, Any]),
)
