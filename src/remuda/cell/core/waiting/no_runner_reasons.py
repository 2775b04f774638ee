"""Explains why no runner has taken a pending job: which runners match, which are available, the jobs ahead, advice."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from remuda.cell.values import Job, Runner, RunnerManager
from remuda.cell.values.people import ONLINE_SECONDS, PRESENT_SECONDS
from remuda.lib.clock import rfc3339
from remuda.model.job import ASSIGNED, FINAL
from remuda.model.runner import ANY_TAG, CapabilityKey, RunnerType, lacks, misfit
from remuda.pipeline.errors import printable
from remuda.queue import Place
from remuda.queue.pickups import Estimate
from remuda.wire.explanations import EstimateInfo, QueueInfo, ReasonCount, RunnerCounts

REASONS = 20
"""Number of misfit reasons that are listed, the most frequent first."""
_PROJECT_OPTIONS = {RunnerType.INSTANCE.value: "--instance-runners", RunnerType.GROUP.value: "--group-runners"}
"""Options of `remuda project set` that let runners of this type take jobs of the project."""
NAMED_JOBS = 5
"""Number of jobs of a kind that `explain_missing_runners` names."""
PROMPT_SECONDS = 60
"""A free runner takes a job within this time: it polls at least once a minute."""


class RunnerView(msgspec.Struct, frozen=True, kw_only=True):
    runner: Runner
    contacted_at: float | None = None
    """Last contact of one of its managers; None: never."""
    jobs: int = 0
    problem: str = ""
    """Why it takes no jobs, as its managers report; empty: at least one takes jobs, or none is present."""


class RunnerSupply(msgspec.Struct, frozen=True, kw_only=True):
    """The runners of an organization, and a pending job's position in the queue and estimated waiting time."""

    runners: tuple[RunnerView, ...] = ()
    place: Place | None = None
    estimate: Estimate | None = None


class NoRunnerReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why no runner has taken a job: as text, and as data for the API."""

    text: str
    runners: RunnerCounts
    queue: QueueInfo | None = None
    estimate: EstimateInfo | None = None
    advice: tuple[str, ...] = ()


def view_of(runner: Runner, managers: Sequence[RunnerManager], *, jobs: int, now: float) -> RunnerView:
    """Return what is known about a runner. It has a problem if all of its present managers have one."""
    present = [manager for manager in managers if now - manager.contacted_at < PRESENT_SECONDS]
    problem = present[0].problem if all(manager.problem for manager in present) and present else ""
    contacted_at = max((manager.contacted_at for manager in managers), default=None)
    return RunnerView(runner=runner, contacted_at=contacted_at, jobs=jobs, problem=problem)


def availability(view: RunnerView, now: float) -> str:
    """Return whether a runner could take a job now, as a field name of `RunnerCounts`, such as `free` or `offline`."""
    if view.runner.paused:
        return "paused"
    if view.problem:
        return "blocked"
    if view.jobs:
        return "busy"
    if view.contacted_at is None:
        return "never_seen"
    away = now - view.contacted_at
    return "offline" if away >= ONLINE_SECONDS else "silent" if away >= PRESENT_SECONDS else "free"


def explain_no_runner(job: Job, supply: RunnerSupply, now: float) -> NoRunnerReason:
    need = job.key()
    misfits = {view.runner.id: misfit(view.runner.fingerprint(), need) for view in supply.runners}
    matching = [view for view in supply.runners if misfits[view.runner.id] is None]
    reasons = Counter(reason.removeprefix("the runner ") for reason in misfits.values() if reason is not None)
    availabilities = Counter(availability(view, now) for view in matching)
    contacts = [view.contacted_at for view in matching if view.contacted_at is not None]
    counts = RunnerCounts(
        known=len(supply.runners),
        matching=len(matching),
        last_seen_at=max(contacts, default=None),
        others=tuple(ReasonCount(reason=text, count=count) for text, count in reasons.most_common(REASONS)),
        **availabilities,
    )
    is_hopeful = bool(counts.free or counts.busy)
    return NoRunnerReason(
        text=_text(counts, supply.place),
        runners=counts,
        queue=_queue(job, supply.place) if supply.place else None,
        estimate=_estimate(supply.estimate) if supply.estimate and is_hopeful else None,
        advice=tuple(_advice(job, supply, matching, counts, now)),
    )


def find_missing_runner(job: Job, runners: Sequence[RunnerView], now: float) -> str:
    """Return why no runner can take the job now: none fits, or those that fit are paused or silent. Empty if one can
    (it may be busy), if the job has ended or is assigned to a runner, or for a trigger job, which needs none."""
    if job.is_trigger or job.state in FINAL or job.state in ASSIGNED:
        return ""
    reason = explain_no_runner(job, RunnerSupply(runners=tuple(runners)), now)
    if reason.runners.free or reason.runners.busy:
        return ""
    return reason.text if reason.runners.matching else next(iter(reason.advice))


def explain_missing_runners(jobs: Sequence[Job], runners: Sequence[RunnerView], now: float) -> list[str]:
    """Return a sentence for each kind of jobs that no runner can take now (see `find_missing_runner`)."""
    kinds: dict[CapabilityKey, list[Job]] = {}
    for job in jobs:
        if not job.is_trigger and job.state not in FINAL:
            kinds.setdefault(job.key(), []).append(job)
    texts = []
    for members in kinds.values():
        if why := find_missing_runner(members[0], runners, now):
            names = [printable(job.name) for job in members]
            more = [f"{len(names) - NAMED_JOBS} more"] if len(names) > NAMED_JOBS else []
            verb = "waits" if len(names) == 1 else "wait"
            texts.append(f"{', '.join([*names[:NAMED_JOBS], *more])} {verb} for a runner: {why}")
    return texts


def _text(counts: RunnerCounts, place: Place | None) -> str:
    if not counts.known:
        return "there is none"
    if not counts.matching:
        return f"none of the {counts.known} fits" if counts.known > 1 else "the only one does not fit"
    available = counts.free + counts.busy
    fit = "1 fits" if counts.matching == 1 else f"{counts.matching} fit"
    if not available:
        return f"{fit}, but {'it' if counts.matching == 1 else 'none'} {_why_unavailable(counts)}"
    return f"{fit}, {counts.free} without a job and {counts.busy} busy{_queue_position(place)}"


def _queue_position(place: Place | None) -> str:
    if place is None:
        return ""
    if not place.ahead:
        return "; it is next"
    return f"; {place.ahead} {'goes' if place.ahead == 1 else 'go'} before it"


def _why_unavailable(counts: RunnerCounts) -> str:
    """Return the end of the sentence "none of the runners that fit ...": why none of them is available, such as `is
    available (2 paused)`; for a single runner such as `is offline`."""
    parts = {
        "paused": counts.paused,
        "blocked": counts.blocked,
        "offline": counts.offline,
        "silent": counts.silent,
        "never seen": counts.never_seen,
    }
    if counts.matching == 1:
        word = next(word for word, count in parts.items() if count)
        return "was never seen" if counts.never_seen else f"is {word}"
    return "is available (" + ", ".join(f"{count} {word}" for word, count in parts.items() if count) + ")"


def _queue(job: Job, place: Place) -> QueueInfo:
    return QueueInfo(
        ahead=place.ahead,
        competing=place.competing,
        priority=job.priority,
        priority_now=place.level,
        project_running=place.running,
    )


def _estimate(estimate: Estimate) -> EstimateInfo:
    times = "1 pick-up" if estimate.pick_ups == 1 else f"{estimate.pick_ups} pick-ups"
    period = rough_duration(estimate.within_seconds)
    return EstimateInfo(
        seconds=round(estimate.seconds, 3),
        pick_ups=estimate.pick_ups,
        within_seconds=estimate.within_seconds,
        text=f"about {rough_duration(estimate.seconds)} ({times} in the last {period})",
    )


def _advice(
    job: Job, supply: RunnerSupply, matching: Sequence[RunnerView], counts: RunnerCounts, now: float
) -> list[str]:
    if not matching:
        return [_what_is_missing(job, [view.runner for view in supply.runners])]
    if counts.free:
        is_late = now - (job.pending_at or job.created_at) >= PROMPT_SECONDS
        is_next = supply.place is not None and not supply.place.ahead
        free = [view for view in matching if availability(view, now) == "free"] if is_late and is_next else []
        return [
            f"check the log of the manager of {runner_label(view.runner)}: it has no job but does not take this one; "
            f"it was last heard of at {rfc3339(view.contacted_at or 0)}"
            for view in sorted(free, key=lambda view: -(view.contacted_at or 0))[:3]
        ]
    advice = []
    for view in sorted(matching, key=lambda view: -(view.contacted_at or 0))[:3]:
        match availability(view, now):
            case "paused":
                advice.append(f"resume {runner_label(view.runner)}: remuda runner resume {view.runner.id}")
            case "blocked":
                advice.append(f"{runner_label(view.runner)} takes no jobs: {view.problem}")
            case "offline" | "silent":
                advice.append(
                    f"check the manager of {runner_label(view.runner)}: it was last heard of at "
                    f"{rfc3339(view.contacted_at or 0)}"
                )
            case "never_seen":
                advice.append(f"start a manager for {runner_label(view.runner)}: none has ever called")
    if counts.busy:
        advice.insert(0, "wait until a runner is free, or add one")
    return advice


def _what_is_missing(job: Job, runners: Sequence[Runner]) -> str:
    if not runners:
        return "create a runner (`remuda runner create`), then `remuda manager register` and `remuda manager run`"
    key = job.key()
    serving = [runner for runner in runners if not runner.fingerprint().pools.isdisjoint(key.pools())]
    if not serving:
        options = " ".join(_PROJECT_OPTIONS[kind] for kind in key.closed_to)
        cure = f", or open the project to others (`remuda project set {job.project_id} {options}`)" if options else ""
        return f"no runner serves this project: assign one to it, or create one{cure}"
    tags = frozenset[str]().union(*(runner.tags for runner in serving))
    missing = sorted(key.tags - tags) if ANY_TAG not in tags else []
    if missing:
        names = f"the tag {missing[0]}" if len(missing) == 1 else f"the tags {', '.join(missing)}"
        return f"no runner has {names}: register one or change the tags"
    if all(lacks(runner.fingerprint(), key.tags, is_protected=True) for runner in serving):
        if not key.tags:
            return (
                "all runners take only jobs with tags: let one take others (`remuda runner tags "
                f"{serving[0].id} --untagged`), or give the job tags"
            )
        return f"no runner has all of the tags {', '.join(sorted(key.tags))}: add them to one, or change the job's"
    return (
        f'the runners that would fit take only jobs of protected refs, and "{job.ref}" is none: set the access_level '
        "of one to not_protected, or add one"
    )


def runner_label(runner: Runner) -> str:
    return f'runner {runner.id} "{runner.description}"' if runner.description else f"runner {runner.id}"


def rough_duration(seconds: float) -> str:
    """Return a duration as rounded text, such as `5 minutes`."""
    if seconds < 1:
        return "1 s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours"
