"""For how long a request for a job is held while there is none.

Decided here: a request is held for the cell's usual time only if its manager says for how long it can wait
(`hold_seconds`), as Remuda's own does when the wait keeps no other runner of it from asking. In gitlab-runner a request
that is held occupies one of the `concurrent` workers, and the reservation behind it counts as demand for a machine; so
others are answered at once, unless the cell or the runner is set to hold them. Nothing is held for longer than the
cell's `poll_hold_seconds`. Pure; `remuda.cell.dispatch.handout` calls it.
"""

import math

from remuda.cell.settings import CellSettings
from remuda.cell.values import Runner
from remuda.wire.runner_api import RequestJob


def hold_seconds(request: RequestJob, runner: Runner, settings: CellSettings) -> float:
    """How many seconds this request may wait for a job; 0: it is answered at once.

    One without a cursor is always answered at once: it may be the first, and the answer brings the cursor.
    """
    if not request.last_update:
        return 0.0
    announced = request.hold_seconds
    usual = settings.other_poll_hold_seconds if announced is None else math.inf
    allowed = usual if runner.poll_hold_seconds is None else runner.poll_hold_seconds
    return max(min(settings.poll_hold_seconds, allowed, math.inf if announced is None else announced), 0.0)
