"""Computes the share of one runner manager in a cell's demand for slots, as input of a plan.

The cell splits the demand for each capability key (jobs with equal needs) among the managers that can run these jobs,
so that together they create what is needed. This module estimates when jobs that wait for others will be ready. GitLab
reports no demand: then only accepted jobs count."""

from collections.abc import Mapping

from remuda.taskscaler.core.values import Demand, KeyDemand, Soon
from remuda.wire import demand as wire

TYPICAL_JOB_SECONDS = 300.0
"""Assumed duration of a job while none has been measured."""
CHANCE = 0.8
"""Probability that the jobs which a job waits for succeed, so that it runs at all."""


def own_demand(
    demand: wire.Demand,
    *,
    runner_id: int,
    system_id: str,
    waiting: Mapping[str, int],
    job_seconds: float = TYPICAL_JOB_SECONDS,
    chance: float = CHANCE,
) -> Demand:
    """The part of the cell's demand (jobs that need slots) for the manager `runner_id`, `system_id`. `waiting`: number
    of its accepted jobs without a slot, by `key_name`. `job_seconds`: assumed duration of jobs, running ones being half
    over. `chance`: probability that the jobs that a job waits for succeed."""
    keys = []
    unmatched = dict(waiting)
    for key in demand.keys:
        name = key_name(key)
        for share in key.shares:
            if (share.runner_id, share.system_id) != (runner_id, system_id):
                continue
            ahead = ((share.created.next, job_seconds / 2), (share.created.later, job_seconds * 1.5))
            keys.append(
                KeyDemand(
                    key=name,
                    running=share.running,
                    ending=share.running,
                    ready=share.ready,
                    waiting=unmatched.pop(name, 0),
                    soon=tuple(
                        Soon(jobs=jobs, ready_in_seconds=seconds, chance=chance) for jobs, seconds in ahead if jobs
                    ),
                )
            )
    keys += [KeyDemand(key=name, waiting=jobs) for name, jobs in sorted(unmatched.items()) if jobs]
    return Demand(keys=tuple(keys))


def key_name(key: wire.KeyDemand) -> str:
    """Name of a capability key (what a job needs of a runner) in plans, logs and `waiting` of `own_demand`."""
    words = [",".join(key.tags) or "untagged", *(["protected"] if key.protected else [])]
    return " ".join([*words, *(f"{kind}:{number}" for kind, number in key.pools)])
