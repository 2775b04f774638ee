"""Step results: in from the runner manager with sequence numbers, out to whoever asks.

Decided here: that results are taken in order and without a gap. One that is there already is passed over, so a manager
may send anything again; one that comes too early is answered with the number that is wanted (409).
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http import auth
from remuda.cell.http.bodies import parameters
from remuda.cell.http.edge import Edge, Endpoint
from remuda.cell.http.errors import bad_parameter, json_answer
from remuda.cell.http.lookup import any_job_in_path, number_in_path
from remuda.cell.http.trace import job_headers
from remuda.cell.values import StepResult
from remuda.wire.runner_api import StepResultsIn, StepResultsTaken


async def add(edge: Edge, request: Request) -> Response:
    """POST /api/remuda/v1/jobs/:job_id/results."""
    job = await auth.job_of(edge, auth.job_token_in(request), number_in_path(request, "job_id"))
    asked = await parameters(request, StepResultsIn, limit_bytes=edge.settings.results_limit_bytes)
    numbers = [result.get("seq") for result in asked.results]
    if not all(isinstance(number, int) and number >= 1 for number in numbers):
        raise bad_parameter("results[seq] is missing or invalid: numbers begin at 1")
    results = [
        StepResult(job_id=job.id, seq=result["seq"], body=msgspec.Raw(msgspec.json.encode(result)))
        for result in asked.results
    ]
    following = await edge.dispatch.add_results(job, results)
    status = 409 if any(result.seq >= following for result in results) else 200
    return json_answer(StepResultsTaken(next_seq=following), status, job_headers(edge, job))


async def show(edge: Edge, request: Request) -> Response:
    """GET /api/remuda/v1/jobs/:job_id/steps: every result as the agent made it."""
    job = await any_job_in_path(edge, request)
    results = await edge.store.results(job.id)
    return json_answer({"version": 1, "job_id": job.id, "results": [result.body for result in results]})


def step_times(results: Iterable[Any]) -> list[dict[str, Any]]:
    """How long each step took, from the events that say that one has finished."""
    return [
        {
            "name": result.get("name"),
            "status": result.get("status"),
            "seconds": _seconds(result.get("started_at"), result.get("finished_at")),
        }
        for result in results
        if isinstance(result, dict) and result.get("event") == "finished"
    ]


def _seconds(began: object, ended: object) -> float | None:
    """The time between two stamps; None when the agent did not send two that can be read."""
    try:
        took = datetime.fromisoformat(str(ended)) - datetime.fromisoformat(str(began))
    except (ValueError, TypeError):
        return None
    return max(round(took.total_seconds(), 6), 0.0)


ENDPOINTS = (
    Endpoint("POST", "/api/remuda/v1/jobs/{job_id}/results", add, is_open=True),
    Endpoint("GET", "/api/remuda/v1/jobs/{job_id}/steps", show),
)
