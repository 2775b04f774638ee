"""`POST /api/remuda/v1/runners/problem`: a manager that requests no jobs for a runner says why, and repeats that as a
sign of life. Its next job request takes the problem back. `job why` and the list of a runner's managers show it. A
separate module, because every group of endpoints for runners is one."""

from starlette.requests import Request

from remuda.cell.http.edge import auth
from remuda.cell.http.edge.access import RUNNER
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.routes import Routes
from remuda.wire.runner_api import ReportProblem

routes = Routes()


@routes.post("/api/remuda/v1/runners/problem", RUNNER, status=204)
async def report_problem(edge: Edge, request: Request, params: ReportProblem) -> None:
    """Report why this manager takes no jobs for the runner, such as a container engine that does not answer."""
    runner = await auth.runner_of(edge, params.token or auth.runner_token_in(request))
    ip = request.client.host if request.client else ""
    await edge.managers.note_call(runner.id, params.system_id, params.info, ip, problem=params.problem)
