"""How much work there is for whom, for administrators and for runner managers that scale.

Decided here: that a runner learns only of the jobs it can take, and only its own managers' shares. What a share is, is
decided in `remuda.cell.core.waiting.demand`.
"""

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.edge import auth
from remuda.cell.http.edge.access import ADMINISTRATOR, RUNNER
from remuda.cell.http.edge.admission import admit
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import json_answer
from remuda.cell.values import Runner
from remuda.model.runner import lacks
from remuda.wire.demand import Demand, KeyDemand


async def show(edge: Edge, request: Request) -> Response:
    """GET /api/remuda/v1/demand."""
    shown = request.headers.get("runner-token")
    if shown is None:
        await admit(edge, ADMINISTRATOR, request)
        return json_answer(Demand(keys=(await edge.dispatch.explanations.count_demand()).keys))
    runner = await auth.runner_of(edge, shown)
    # A manager whose room is all taken asks for no job; that it asks for this shows that it is there.
    ip = request.client.host if request.client else ""
    await edge.managers.note_call(runner.id, request.query_params.get("system_id"), None, ip)
    counted = await edge.dispatch.explanations.count_demand()
    keys = counted.by_runner.get(runner.id)
    if keys is None:
        keys = tuple(replace(key, shares=()) for key in counted.keys if _is_for(key, runner))
    return json_answer(Demand(keys=keys))


def _is_for(key: KeyDemand, runner: Runner) -> bool:
    offer = runner.fingerprint()
    fits = lacks(offer, frozenset(key.tags), is_protected=key.protected) is None
    return fits and not offer.pools.isdisjoint(key.pools)


ENDPOINTS = (Endpoint("GET", "/api/remuda/v1/demand", show, RUNNER, query={"system_id": str}, gives=Demand),)
