"""What a manager says of the machines that it has created, and does about them: `remuda scale explain`, `... sweep`.

Nothing is decided here: plans explain themselves, and what an orphan is stands in `remuda.taskscaler.loop`. The values
cross the control socket; `remuda.cli.scale` is the other end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec

from remuda.manager.config.load import RunnerConfig
from remuda.manager.errors import ManagerError
from remuda.manager.process.control import Order
from remuda.manager.scaling.orphaned_machines import LeftMachines
from remuda.manager.scaling.scaling import Scaled, Scaling
from remuda.taskscaler.loop import ScalerStatus
from remuda.taskscaler.loop.sweep import SweepResult

SWEEP_SECONDS = 400.0
"""How long a sweep may take: it asks providers, and has them remove machines."""


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """The machines of one runner."""

    runner: str
    """Its short token."""
    name: str
    status: ScalerStatus
    is_ending: bool = False
    """It is not configured any more: its machines go when their jobs are over."""


class ScaleReport(msgspec.Struct, frozen=True, kw_only=True):
    """Those of all runners."""

    fleets: tuple[FleetReport, ...]


class FoundOrphan(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that nobody owns any more."""

    runner: str
    """The runner whose plugin found it."""
    instance: str
    owner: str
    cause: str
    created_at: float | None
    is_removed: bool
    """Its group has accepted that it goes."""


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found."""

    orphans: tuple[FoundOrphan, ...]
    problems: tuple[str, ...]
    """Groups that could not be asked."""
    passed_over: tuple[str, ...] = ()
    """Groups whose plugins cannot find machines by their tags."""
    remarks: tuple[str, ...] = ()
    """What else is to be known of machines that were left, or are being left."""


def orders(scaling: Scaling, left: LeftMachines) -> Mapping[str, Callable[[Order], Awaitable[msgspec.Struct]]]:
    """What can be asked of a manager, by command."""

    async def explain(order: Order) -> ScaleReport:
        known = [*scaling.fleets, *((one.runner, one) for one in scaling.ending)]
        ending = {id(one) for one in scaling.ending}
        return ScaleReport(
            fleets=tuple(
                FleetReport(
                    runner=runner.short_token, name=runner.name, status=one.status(), is_ending=id(one) in ending
                )
                for runner, one in _chosen(known, order.runner)
            )
        )

    async def sweep(order: Order) -> SweepReport:
        behind = [one for one in await left.find() if order.runner in ("", one.name, one.kept.runner)]
        ending = [one.runner for one in scaling.ending if order.runner in ("", one.runner.name, one.runner.short_token)]
        others = bool(behind or ending)
        fleets = [] if others and not scaling.fleets else _chosen(scaling.fleets, order.runner, others=others)
        # What is swept by what is kept of it is nobody's else to sweep.
        kept = {one.kept.owner for one in behind if not one.unknown}
        async with asyncio.TaskGroup() as tasks:
            looks = [
                tasks.create_task(
                    scaled.sweep(lambda: scaling.owners | kept, remove=order.remove),
                    name=f"sweep of {runner.short_token}",
                )
                for runner, scaled in fleets
            ]
            left_looks = [
                tasks.create_task(left.sweep(one, remove=order.remove), name=f"sweep of {one.name}") for one in behind
            ]
        names = [*(runner.name or runner.short_token for runner, _ in fleets), *(one.title for one in behind)]
        swept = [*(look.result() for look in looks), *(look.result()[0] for look in left_looks)]
        if order.remove:
            # What is gone takes up room until it is seen.
            for scaled in scaling.all:
                scaled.look()
        remarks = [
            f"{one.name or one.short_token} is not configured any more: its machines go when their jobs are over"
            for one in ending
        ]
        remarks += [text for look in left_looks for text in look.result()[1]]
        return _report(list(zip(names, swept, strict=True)), remarks)

    return {"scale": explain, "sweep": sweep}


def _report(swept: Sequence[tuple[str, SweepResult]], remarks: Iterable[str]) -> SweepReport:
    orphans: dict[tuple[str, str], FoundOrphan] = {}
    for runner, part in swept:
        for one in part.found:
            is_removed = one.instance in part.removed
            # Runners of one provider see the same machines.
            if is_removed or (one.instance, one.owner) not in orphans:
                orphans[one.instance, one.owner] = FoundOrphan(
                    runner=runner,
                    instance=one.instance,
                    owner=one.owner,
                    cause=one.why,
                    created_at=one.created_at,
                    is_removed=is_removed,
                )
    return SweepReport(
        orphans=tuple(orphans.values()),
        problems=tuple(f"{runner}: {text}" for runner, part in swept for text in part.errors),
        passed_over=tuple(f"{runner}: {group}" for runner, part in swept for group in part.passed_over),
        remarks=tuple(remarks),
    )


def _chosen(
    fleets: Iterable[tuple[RunnerConfig, Scaled]], wanted: str, *, others: bool = False
) -> list[tuple[RunnerConfig, Scaled]]:
    """Those that are meant; `others`: what is meant may be something else."""
    known = list(fleets)
    if not known:
        raise ManagerError(
            "no runner of this manager has machines created; set a plugin in [runners.autoscaler] for one that should"
        )
    found = [one for one in known if wanted in ("", one[0].name, one[0].short_token)]
    if not found and not others:
        names = ", ".join(runner.name or runner.short_token for runner, _ in known)
        raise ManagerError(f"no runner {wanted!r} has machines created; there are: {names}")
    return found
