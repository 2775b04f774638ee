"""Step results: the runner manager sends them with sequence numbers, people read them.

A result that is stored already is ignored, so a manager may send a result again. If earlier results are missing, the
answer is 409 with the expected number; a number above MAX_RESULTS gets 413, and the manager sends no more. Secrets are
removed, and results longer than RESULT_BYTES are cut."""

from collections.abc import Iterable
from contextlib import aclosing
from typing import Any, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.core.payload.redaction import clean_result
from remuda.cell.dispatch.payload_view import load_secrets
from remuda.cell.dispatch.step_results import read_results
from remuda.cell.http.edge import auth
from remuda.cell.http.edge.access import JOB, of_job
from remuda.cell.http.edge.bodies import number_in_query, parameters
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import bad_parameter, json_answer, too_large
from remuda.cell.http.edge.lookup import number_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.runner.trace import job_headers
from remuda.cell.values import Job, StepResult
from remuda.cell.values.people import Level
from remuda.lib.clock import parse_time
from remuda.wire.runner_api import StepResultsIn, StepResultsTaken

MAX_RESULTS = 50_000
"""How many results one job may have."""
RESULT_BYTES = 256 * 1024
"""Size of one result; a longer one is cut."""
PAGE = 1000
"""Results in one response."""
PAGE_BYTES = 8 * 1024 * 1024
"""Size of one response; it has at least one result."""
_TEXT, _FIELDS = 1024, 40
"""What is kept of a result that is too long: characters of a text, and fields."""
_PUNCTUATION = 4
"""Bytes around the name of a field."""


routes = Routes()


class StepsShape(Shape, kw_only=True):
    version: int = 1
    job_id: int
    results: list[Any]
    next_after: int | None


class StepTimes(TypedDict, total=False):
    """The fields of a step result from which times are computed. `note`: set if results of the job are missing."""

    event: Any
    path: Any
    attempt: Any
    retried: Any
    name: Any
    origin: Any
    reference: Any
    time: Any
    status: Any
    started_at: Any
    finished_at: Any
    note: Any


@routes.post(
    "/api/remuda/v1/jobs/{job_id}/results",
    JOB,
    takes=StepResultsIn,
    query={"token": str},
    gives=StepResultsTaken,
    status=200,
    also=(409,),
)
async def add(edge: Edge, request: Request) -> Response:
    """Store the step results that a runner manager sends for a job."""
    job = await auth.job_of(edge, auth.job_token_in(request), number_in_path(request, "job_id"))
    params = await parameters(request, StepResultsIn, limit_bytes=edge.settings.results_limit_bytes)
    numbers = [result["seq"] for result in params.results if isinstance(result.get("seq"), int)]
    if len(numbers) < len(params.results) or any(number < 1 for number in numbers):
        raise bad_parameter("results[seq] is missing or invalid: numbers begin at 1")
    if any(number > MAX_RESULTS for number in numbers):
        raise too_large(f"a job may have at most {MAX_RESULTS} step results")
    secrets = await load_secrets(edge.store, job)
    bodies = [_encode(clean_result(result, secrets)) for result in params.results]
    results = [
        StepResult(job_id=job.id, seq=number, body=msgspec.Raw(body))
        for number, body in zip(numbers, bodies, strict=True)
    ]
    following = await edge.dispatch.runner_calls.add_results(job, results)
    status = 409 if any(result.seq >= following for result in results) else 200
    return json_answer(StepResultsTaken(next_seq=following), status, job_headers(edge, job))


def _encode(result: dict[str, Any]) -> bytes:
    """Encode a step result. If it is longer than RESULT_BYTES, texts are cut and the largest lists and objects left
    out; it is not dropped, because sequence numbers must not have gaps."""
    body = msgspec.json.encode(result)
    if len(body) <= RESULT_BYTES:
        return body
    structured = {name: value for name, value in result.items() if isinstance(value, dict | list)}
    plain = {
        name: value[:_TEXT] if isinstance(value, str) else value
        for name, value in list(result.items())[:_FIELDS]
        if name not in structured
    }
    room = RESULT_BYTES - len(msgspec.json.encode(plain))
    sizes = {name: len(name) + len(msgspec.json.encode(value)) for name, value in structured.items()}
    for name in sorted(sizes, key=lambda name: sizes[name]):
        room -= sizes[name] + _PUNCTUATION
        if room < 0:
            break
        plain[name] = structured.pop(name)
    return msgspec.json.encode(plain | {"cut": True, "left_out": list(structured)[:_FIELDS]})


@routes.get("/api/remuda/v1/jobs/{job_id}/steps", of_job(Level.REPORTER), query={"after": int, "limit": int})
async def show(edge: Edge, request: Request, job: Job) -> StepsShape:
    """Show the step results of a job, without secrets, a page at a time."""
    after, limit = number_in_query(request, "after") or 0, number_in_query(request, "limit")
    limit = PAGE if limit is None else max(min(limit, PAGE), 1)
    page: list[StepResult] = []
    size, following = 0, None
    async with aclosing(read_results(edge.store.jobs, job.id, after=after)) as results:
        async for result in results:
            size += len(bytes(result.body))
            if page and (len(page) == limit or size > PAGE_BYTES):
                following = page[-1].seq
                break
            page.append(result)
    return StepsShape(job_id=job.id, results=[result.body for result in page], next_after=following)


def step_times(results: Iterable[Any]) -> list[dict[str, Any]]:
    """Path, name, status and duration in seconds (None if not known) of each finished step."""
    return [
        {
            "path": result.get("path"),
            "name": result.get("name"),
            "status": result.get("status"),
            "seconds": _seconds(result.get("started_at"), result.get("finished_at")),
        }
        for result in results
        if isinstance(result, dict) and result.get("event") == "finished"
    ]


def _seconds(began: object, ended: object) -> float | None:
    start, end = parse_time(began), parse_time(ended)
    return None if start is None or end is None else max(round(end - start, 6), 0.0)
