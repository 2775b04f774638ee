"""What a manager says of the machines that it has created, and does about them: `remuda scale explain`, `... sweep`.

Nothing is decided here: plans explain themselves, and what an orphan is stands in `remuda.taskscaler.loop`. The values
cross the control socket; `remuda.cli.scale` is the other end.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from remuda.manager.config import RunnerConfig
from remuda.manager.control import Order
from remuda.manager.errors import ManagerError
from remuda.manager.scaling import Scaled, Scaling
from remuda.taskscaler.loop import ScalerStatus

SWEEP_SECONDS = 300.0
"""How long a sweep may take: it asks providers, and has them remove machines."""


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """The machines of one runner."""

    runner: str
    """Its short token."""
    name: str
    status: ScalerStatus


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


def orders(scaling: Scaling) -> Mapping[str, Callable[[Order], Awaitable[msgspec.Struct]]]:
    """What can be asked of a manager, by command."""

    async def explain(order: Order) -> ScaleReport:
        return ScaleReport(
            fleets=tuple(
                FleetReport(runner=runner.short_token, name=runner.name, status=scaled.status())
                for runner, scaled in _chosen(scaling.fleets, order.runner)
            )
        )

    async def sweep(order: Order) -> SweepReport:
        found: dict[tuple[str, str], FoundOrphan] = {}
        problems: list[str] = []
        passed_over: list[str] = []
        for runner, scaled in _chosen(scaling.fleets, order.runner):
            swept = await scaled.sweep(scaling.owners, remove=order.remove)
            problems += [f"{runner.name or runner.short_token}: {text}" for text in swept.errors]
            passed_over += [f"{runner.name or runner.short_token}: {group}" for group in swept.passed_over]
            for one in swept.found:
                is_removed = one.instance in swept.removed
                # Runners of one provider see the same machines.
                if is_removed or (one.instance, one.owner) not in found:
                    found[one.instance, one.owner] = FoundOrphan(
                        runner=runner.short_token,
                        instance=one.instance,
                        owner=one.owner,
                        cause=one.why,
                        created_at=one.created_at,
                        is_removed=is_removed,
                    )
        return SweepReport(orphans=tuple(found.values()), problems=tuple(problems), passed_over=tuple(passed_over))

    return {"scale": explain, "sweep": sweep}


def _chosen(fleets: Iterable[tuple[RunnerConfig, Scaled]], wanted: str) -> list[tuple[RunnerConfig, Scaled]]:
    known = list(fleets)
    if not known:
        raise ManagerError(
            "no runner of this manager has machines created; set a plugin in [runners.autoscaler] for one that should. "
            "To be rid of the machines of a runner that is gone, put its section back and take it out while the "
            "manager runs"
        )
    found = [one for one in known if wanted in ("", one[0].name, one[0].short_token)]
    if not found:
        names = ", ".join(runner.name or runner.short_token for runner, _ in known)
        raise ManagerError(f"no runner {wanted!r} has machines created; there are: {names}")
    return found
