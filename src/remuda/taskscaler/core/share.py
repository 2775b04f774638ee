"""What of the demand is one manager's, as the values that a plan takes.

The cell has shared it out already, among all managers that serve a key (`remuda.cell.core.waiting.demand`), so that
together they make what is needed. Decided here: how its answer is read, and when jobs that wait for others are taken to
be ready. A plain GitLab says nothing: then only jobs that wait here count. Jobs that nobody knows the time of, because
they wait for a person or a clock, do not count.
"""

from collections.abc import Mapping

from remuda.taskscaler.core.values import Demand, KeyDemand, Soon
from remuda.wire import demand as wire

TYPICAL_JOB_SECONDS = 300.0
"""Taken for the time of a job while none has been seen."""
CHANCE = 0.8
"""That what a job waits for succeeds, so that it will run at all."""


def own_demand(
    told: wire.Demand,
    *,
    runner_id: int,
    system_id: str,
    waiting: Mapping[str, int],
    job_seconds: float = TYPICAL_JOB_SECONDS,
    chance: float = CHANCE,
) -> Demand:
    """A manager's own part of what its cell told, with the jobs that it has accepted and that wait here, by key.

    Of a job that others wait for half is over on average, and it is taken to last `job_seconds`.
    """
    keys = []
    left = dict(waiting)
    for one in told.keys:
        name = key_name(one)
        for share in one.shares:
            if (share.runner_id, share.system_id) != (runner_id, system_id):
                continue
            ahead = ((share.created.next, job_seconds / 2), (share.created.later, job_seconds * 1.5))
            keys.append(
                KeyDemand(
                    key=name,
                    running=share.running,
                    ending=share.running,
                    ready=share.ready,
                    waiting=left.pop(name, 0),
                    soon=tuple(
                        Soon(jobs=jobs, ready_in_seconds=seconds, chance=chance) for jobs, seconds in ahead if jobs
                    ),
                )
            )
    keys += [KeyDemand(key=name, waiting=jobs) for name, jobs in sorted(left.items()) if jobs]
    return Demand(keys=tuple(keys))


def key_name(key: wire.KeyDemand) -> str:
    """A capability key in words that people and logs can tell apart."""
    words = [",".join(key.tags) or "untagged", *(["protected"] if key.protected else [])]
    return " ".join([*words, *(f"{kind}:{number}" for kind, number in key.pools)])
