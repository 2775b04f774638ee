"""Asks a Remuda cell for its demand: how many jobs wait there for machines of this manager. GitLab reports none."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from remuda.wire import demand as wire
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError

if TYPE_CHECKING:
    from remuda.taskscaler.core.values import Demand

DEMAND_PATH = "/api/remuda/v1/demand"
BAD_TOKEN = "the runner's token is not valid there (any more); create a runner there, and use its token"


class CellDemand:
    """Asks a runner's server for the demand (number of waiting jobs), and subtracts the jobs received since then."""

    def __init__(self, client: RunnerClient) -> None:
        self.client = client
        self._remaining: Counter[str] = Counter()
        self._is_known = False
        """True if it is known whether the server is a cell. `ask` has to find out: without machines no job is
        requested, so no other answer has shown it."""

    async def ask(self, waiting: Mapping[str, int]) -> "Demand":
        """Return how many jobs need machines of this manager: its share of those that wait at the cell, and those that
        wait here (`waiting`); without a cell only the latter. Both are counted by demand key: jobs that the same
        runners can take have the same key. Raises TemporaryError if the cell gives no valid answer."""
        from remuda.fleeting.errors import TemporaryError
        from remuda.taskscaler.core.share import own_demand

        demand = wire.Demand()
        own = self.client.system_id
        try:
            if not self._is_known and not self.client.is_remuda.is_set():
                answer = await self.client.verify()
                # Another answer may come from a proxy, which does not tell what the server is.
                if answer.status != 200:
                    raise TemporaryError(
                        f"the server answered the check of the runner's token with {answer.status}"
                        + (f": {answer.message}" if answer.message else "")
                    )
            self._is_known = True
            if self.client.is_remuda.is_set():
                reply = await self.client.own("GET", f"{DEMAND_PATH}?system_id={quote(own)}", endpoint="demand")
                if reply.status != 200:
                    why = f": {BAD_TOKEN}" if reply.status in (401, 403) else ""
                    raise TemporaryError(f"the cell answered the request for its demand with {reply.status}{why}")
                demand = msgspec.json.decode(reply.body, type=wire.Demand)
        except (RunnerApiTemporaryError, msgspec.MsgspecError) as error:
            raise TemporaryError(f"cannot get the server's demand: {error}") from error
        ids = {share.runner_id for key in demand.keys for share in key.shares if share.system_id == own}
        own_share = own_demand(demand, runner_id=min(ids, default=0), system_id=own, waiting=waiting)
        self._remaining = Counter({key.key: key.ready for key in own_share.keys})
        return own_share

    def deduct_job(self) -> str:
        """Subtract a received job from the last known demand, and return its demand key (see `ask`); empty if no demand
        is left. The key with the most waiting jobs is used, because all machines are alike."""
        for key, ready in self._remaining.most_common(1):
            if ready > 0:
                self._remaining[key] -= 1
                return key
        return ""
