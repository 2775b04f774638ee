"""Converts plans to text, for `remuda scale explain`, the field `why` of logged decisions, and errors of jobs."""

from collections.abc import Iterable, Sequence

from remuda.lib.durations import format_duration
from remuda.taskscaler.core.decisions import Because, Plan, Reason, Terms

SHOWN = 10
"""Number of instances that are listed one by one; of the rest only the number is shown."""

_WORDS = {
    Reason.WAITING_JOBS: "{slots} for jobs that wait here",
    Reason.READY_JOBS: "{slots} for jobs that wait at the server",
    Reason.SOON_JOBS: "{slots} for jobs that will be ready by the time that an instance is",
    Reason.IDLE_TARGET: "{slots} idle, as the policy wants",
    Reason.MAX_INSTANCES: "max_instances is {max_instances}",
    Reason.QUOTA: "the provider's quota is {quota} instances",
    Reason.THROTTLED: "the rate limit is {rate:g} per second",
    Reason.MAX_CREATING: "{starting} instances are starting, and at most {max_creating} may start at a time",
    Reason.BACKING_OFF: "the last {failures} creations failed; the next try is in {seconds}",
    Reason.PROBING: "the last {failures} creations failed, so one must succeed before more are requested",
    Reason.NOT_CURRENT: "its plugin does not answer, or is still starting, so its instances are unknown",
    Reason.IDLE: "idle for {seconds} (the limit is {idle_seconds}), and its slots ({slots}) are not needed",
    Reason.USED_UP: "has had {uses} of at most {max_use_count} jobs",
    Reason.UNHEALTHY: "{failures} failed health checks or bad reports of jobs in a row; jobs on it: {jobs}",
    Reason.FAILED: "could not be prepared",
    Reason.STUCK: "not ready after {seconds}; the limit is {creation_seconds}",
    Reason.DRAINED: "was drained, and its jobs have ended",
    Reason.OVER_LIMIT: "there are {instances} instances, and max_instances is {max_instances}",
    Reason.UNAWAITED: "still starting, but no job waits for it, and its runner is not configured any more",
    Reason.RETRIED: "its deletion was requested {seconds} ago, and it still exists",
    Reason.LOST: "is gone, and this manager did not remove it; jobs on it: {jobs}",
    Reason.GONE: "belonged to another owner, and is gone",
    Reason.UNDELIVERED: "requested {seconds} ago, and never listed by the group",
    Reason.WITHDRAWN: "not sent yet, and not needed any more",
    Reason.NOT_IDLE_LONG: "not needed, but not idle for {idle_seconds} yet",
    Reason.RESERVED: "not needed, but open requests for jobs reserve {reserved} slots",
    Reason.UNKNOWN_STATE: "reported as unknown or suspended by its group, or not listed yet: gets no job, and is kept",
    Reason.SUSPECT: "not listed by its group, or failed its last health check: gets no job for now",
    Reason.FOREIGN: "tagged as another owner's, or of a group that is not configured: left alone",
}


def describe(because: Because) -> str:
    numbers = {
        name: format_duration(round(value)) if name.endswith("seconds") and not isinstance(value, str) else value
        for name, value in because.numbers.items()
    }
    return _WORDS[because.reason].format(**numbers)


def explain(plan: Plan, *, now: float) -> str:
    lines = [f"Policy: {plan.policy}", *_sums(plan.terms)]
    for creation in plan.create:
        parts = ", ".join(describe(because) for because in creation.because)
        lines.append(f"Create {_plural(creation.count, 'instance')}{_in(creation.group)}, slots: {parts}")
    lines += _list_instances("Remove", [(removal.id, removal.because) for removal in plan.remove])
    lines += _list_instances("Drain", [(drain.id, drain.because) for drain in plan.drain])
    for forgetting in plan.forget:
        what = forgetting.id or f"{_plural(forgetting.count, 'requested instance')}{_in(forgetting.group)}"
        lines.append(f"Forget {what}: {describe(forgetting.because)}")
    if plan.is_empty:
        lines.append("Nothing to do")
    for hindrance in plan.hindered:
        verb = "Keep" if hindrance.because.reason in _KEEPING else "Cannot create"
        count = _plural(hindrance.count, "instance")
        lines.append(f"{verb} {count}{_in(hindrance.group)}: {describe(hindrance.because)}")
    if plan.keys:
        lines.append("Wanted most by: " + ", ".join(f"{key or 'jobs'} ({jobs})" for key, jobs in plan.keys))
    reservable = "any number of" if plan.reservable is None else plan.reservable
    lines.append(f"Requests for jobs may reserve {reservable} slots, and reserve {plan.terms.reserved}")
    if plan.look_again_at is not None:
        seconds = round(max(plan.look_again_at - now, 0))
        lines.append(f"The plan may change by itself in {format_duration(seconds)} at the earliest")
    return "\n".join(lines) + "\n"


_KEEPING = frozenset({Reason.NOT_IDLE_LONG, Reason.RESERVED, Reason.UNKNOWN_STATE, Reason.SUSPECT, Reason.FOREIGN})


def _sums(terms: Terms) -> list[str]:
    most = f" of at most {terms.max_instances}" if terms.max_instances else ""
    total = terms.acquired + terms.free + terms.coming
    return [
        f"Wanted: {terms.acquired} in use + {terms.waiting} waiting + {terms.ready} ready + {terms.soon} soon"
        f" + {terms.idle_target} idle = {terms.slots_wanted} slots",
        f"There: {terms.acquired} in use + {terms.free} free + {terms.coming} coming = {total} slots,"
        f" by {_plural(terms.instances, 'instance')}{most}",
        f"Missing: {terms.missing}; ready and not wanted: {terms.surplus}",
    ]


def _list_instances(verb: str, decisions: Sequence[tuple[str, Because]]) -> Iterable[str]:
    for name, because in decisions[:SHOWN]:
        yield f"{verb} {name}: {describe(because)}"
    if len(decisions) > SHOWN:
        yield f"{verb} {len(decisions) - SHOWN} more"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _in(group: str) -> str:
    return f" in {group}" if group else ""
