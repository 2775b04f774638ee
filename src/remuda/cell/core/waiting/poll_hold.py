"""Decides how long a job request is held open (long polling) while there is no job, at most `poll_hold_seconds` of the
cell. A manager that says how long it can wait (`hold_seconds`), as Remuda's does, is held. Others are answered at once
unless configured otherwise: in gitlab-runner a held request occupies one of the `concurrent` workers and counts as
demand for a machine. A separate module, because decisions in `core` are pure and the module that uses it does I/O."""

import math

from remuda.cell.settings import CellSettings
from remuda.cell.values import Runner
from remuda.wire.runner_api import RequestJob


def hold_seconds(request: RequestJob, runner: Runner, settings: CellSettings) -> float:
    """Return for how many seconds this request can be held; 0 means to answer at once. A request without the cursor
    (`last_update`) from an earlier answer is answered at once: it is perhaps the first one, and the answer contains the
    cursor."""
    if not request.last_update:
        return 0.0
    announced = request.hold_seconds
    usual = settings.other_poll_hold_seconds if announced is None else math.inf
    allowed = usual if runner.poll_hold_seconds is None else runner.poll_hold_seconds
    return max(min(settings.poll_hold_seconds, allowed, math.inf if announced is None else announced), 0.0)
