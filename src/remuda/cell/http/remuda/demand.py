"""`GET /demand`: how many jobs run, wait or will wait for a runner, for administrators and managers that scale
machines. A runner sees only jobs that it can run and, of the numbers for each manager (`shares`), its own managers'."""

from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.http.edge import auth
from remuda.cell.http.edge.access import ADMINISTRATOR, RUNNER
from remuda.cell.http.edge.admission import admit
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.routes import Routes
from remuda.cell.values import Runner
from remuda.model.runner import lacks
from remuda.wire.demand import Demand, KeyDemand

routes = Routes()


@routes.get("/api/remuda/v1/demand", RUNNER, query={"system_id": str})
async def show(edge: Edge, request: Request) -> Demand:
    """Count the jobs that run, wait or will wait, by tags and other needs (capability key)."""
    token = request.headers.get("runner-token")
    if token is None:
        await admit(edge, ADMINISTRATOR, request)
        return Demand(keys=(await edge.dispatch.explanations.count_demand()).keys)
    runner = await auth.runner_of(edge, token)
    # A manager without free capacity requests no jobs; this call is its sign of life.
    ip = request.client.host if request.client else ""
    await edge.managers.note_call(runner.id, request.query_params.get("system_id"), None, ip)
    counted = await edge.dispatch.explanations.count_demand()
    keys = counted.by_runner.get(runner.id)
    if keys is None:
        keys = tuple(replace(key, shares=()) for key in counted.keys if _is_for(key, runner))
    return Demand(keys=keys)


def _is_for(key: KeyDemand, runner: Runner) -> bool:
    offer = runner.fingerprint()
    fits = lacks(offer, frozenset(key.tags), is_protected=key.protected) is None
    return fits and not offer.pools.isdisjoint(key.pools)
