"""Control commands of the manager: `scale` (for `remuda scale explain`) returns state and last plan of each fleet, the
machines created for one runner; `sweep` lists or removes machines that belong to no configured runner."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec

from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.scaled import Scaled
from remuda.manager.errors import ManagerError
from remuda.manager.process.control import Command
from remuda.manager.scaling.orphaned_machines import OrphanedMachines
from remuda.manager.scaling.scaling import Scaling
from remuda.taskscaler.fleet.status import ScalerStatus
from remuda.taskscaler.loop.sweep import SweepResult

SWEEP_SECONDS = 400.0
"""How long a sweep may take: providers list and remove machines."""


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """State of the machines that were created for one runner (its fleet), and what the scaler plans to do with them."""

    runner: str
    """Its short token."""
    name: str
    status: ScalerStatus
    is_ending: bool = False
    """The runner is no longer configured: its machines are removed when their jobs are over."""


class ScaleReport(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to the control command `scale`: a report for each fleet (the machines created for one runner)."""

    fleets: tuple[FleetReport, ...]


class FoundOrphan(msgspec.Struct, frozen=True, kw_only=True):
    """An orphaned machine: it was created for this manager, and no runner of this manager uses it any more."""

    runner: str
    """The runner whose plugin found it."""
    instance: str
    owner: str
    cause: str
    created_at: float | None
    is_removed: bool
    """Its group has accepted the removal."""


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to the command `sweep`: the orphaned machines (of no configured runner) that were found or removed."""

    orphans: tuple[FoundOrphan, ...]
    problems: tuple[str, ...]
    """Errors, for example of groups that could not be asked."""
    passed_over: tuple[str, ...] = ()
    """Groups whose plugins cannot find machines by their tags."""
    remarks: tuple[str, ...] = ()
    """Notes on machines of runners that are no longer configured."""


def scale_commands(
    scaling: Scaling, orphans: OrphanedMachines
) -> Mapping[str, Callable[[Command], Awaitable[msgspec.Struct]]]:
    """Return the handlers of the control commands `scale` and `sweep` by name, for `Control`."""

    async def explain(command: Command) -> ScaleReport:
        fleets = [*scaling.fleets, *((scaled.runner, scaled) for scaled in scaling.ending)]
        ending = {id(scaled) for scaled in scaling.ending}
        return ScaleReport(
            fleets=tuple(
                FleetReport(
                    runner=runner.short_token, name=runner.name, status=scaled.status(), is_ending=id(scaled) in ending
                )
                for runner, scaled in _select(fleets, command.runner)
            )
        )

    async def sweep(command: Command) -> SweepReport:
        name = command.runner
        orphaned = [fleet for fleet in await orphans.find() if name in ("", fleet.name, fleet.record.runner)]
        ending = [
            scaled.runner for scaled in scaling.ending if name in ("", scaled.runner.name, scaled.runner.short_token)
        ]
        others = bool(orphaned or ending)
        fleets = [] if others and not scaling.fleets else _select(scaling.fleets, name, others=others)
        # Machines that are swept by their record are not swept a second time.
        recorded = {fleet.record.owner for fleet in orphaned if not fleet.unknown}
        async with asyncio.TaskGroup() as tasks:
            sweeps = [
                tasks.create_task(
                    scaled.sweep(lambda: scaling.owners | recorded, remove=command.remove),
                    name=f"sweep of {runner.short_token}",
                )
                for runner, scaled in fleets
            ]
            orphan_sweeps = [
                tasks.create_task(orphans.sweep(fleet, remove=command.remove), name=f"sweep of {fleet.name}")
                for fleet in orphaned
            ]
        names = [*(runner.name or runner.short_token for runner, _ in fleets), *(fleet.title for fleet in orphaned)]
        swept = [*(task.result() for task in sweeps), *(task.result()[0] for task in orphan_sweeps)]
        if command.remove:
            # Removed machines count against quotas until the scalers look again.
            for scaled in scaling.all:
                scaled.refresh()
        remarks = [
            f"{runner.name or runner.short_token} is not configured any more: its machines go when their jobs are over"
            for runner in ending
        ]
        remarks += [text for task in orphan_sweeps for text in task.result()[1]]
        return _report(list(zip(names, swept, strict=True)), remarks)

    return {"scale": explain, "sweep": sweep}


def _report(swept: Sequence[tuple[str, SweepResult]], remarks: Iterable[str]) -> SweepReport:
    orphans: dict[tuple[str, str], FoundOrphan] = {}
    for runner, part in swept:
        for orphan in part.found:
            is_removed = orphan.instance in part.removed
            # Runners of one provider see the same machines.
            if is_removed or (orphan.instance, orphan.owner) not in orphans:
                orphans[orphan.instance, orphan.owner] = FoundOrphan(
                    runner=runner,
                    instance=orphan.instance,
                    owner=orphan.owner,
                    cause=orphan.why,
                    created_at=orphan.created_at,
                    is_removed=is_removed,
                )
    return SweepReport(
        orphans=tuple(orphans.values()),
        problems=tuple(f"{runner}: {text}" for runner, part in swept for text in part.errors),
        passed_over=tuple(f"{runner}: {group}" for runner, part in swept for group in part.passed_over),
        remarks=tuple(remarks),
    )


def _select(
    fleets: Iterable[tuple[RunnerConfig, Scaled]], name: str, *, others: bool = False
) -> list[tuple[RunnerConfig, Scaled]]:
    """Return the fleets of runners with this name or short token, or all if `name` is empty. Raises ManagerError if
    `fleets` is empty, or if none matches, unless `others` says that machines outside of `fleets` match `name`."""
    candidates = list(fleets)
    if not candidates:
        raise ManagerError(
            "no runner of this manager creates machines; set a plugin in [runners.autoscaler] of a runner that should"
        )
    selected = [(runner, scaled) for runner, scaled in candidates if name in ("", runner.name, runner.short_token)]
    if not selected and not others:
        names = ", ".join(runner.name or runner.short_token for runner, _ in candidates)
        raise ManagerError(f"no runner {name!r} creates machines; those that do are: {names}")
    return selected
