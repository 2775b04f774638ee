"""Decides how long a job request is kept open (long polling) while there is no job: at most `poll_hold_seconds` of the
cell, and only for managers that say how long they can wait (`hold_seconds`), as Remuda's does. Others get an answer at
once unless configured otherwise: in gitlab-runner an open request occupies one of the `concurrent` workers and counts
as demand for a machine. A separate module, because decisions in `core` are pure and the one that uses it does I/O."""

import math

from remuda.cell.settings import CellSettings
from remuda.cell.values import Runner
from remuda.wire.runner_api import RequestJob


def hold_seconds(request: RequestJob, runner: Runner, settings: CellSettings) -> float:
    """Return how many seconds this job request may be kept open; 0 means to answer at once. A request without
    `last_update` is answered at once: it is perhaps the manager's first, and the answer contains that value."""
    if not request.last_update:
        return 0.0
    announced = request.hold_seconds
    usual = settings.other_poll_hold_seconds if announced is None else math.inf
    allowed = usual if runner.poll_hold_seconds is None else runner.poll_hold_seconds
    return max(min(settings.poll_hold_seconds, allowed, math.inf if announced is None else announced), 0.0)
