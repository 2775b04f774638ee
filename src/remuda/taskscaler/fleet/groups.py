"""What is known of one instance group beyond its configuration. Pure.

Decided here: which limits hold when the plugin has less than the configuration wants, and what counts as a creation
that failed or succeeded. What its provider does by itself is judged in `rebalancing`, from what is kept here. `roster`
keeps these, `group_watch` tells what the plugin says.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from remuda.fleeting.port import ProviderInfo
from remuda.taskscaler.core.boot import Boots, estimate
from remuda.taskscaler.core.rebalancing import Sighting, Verdict, drop_old, judge
from remuda.taskscaler.core.values import Bucket, Group, Limits


class GroupState(msgspec.Struct, kw_only=True):
    """One group."""

    name: str
    limits: Limits
    """As configured."""
    bucket: Bucket | None = None
    failures: int = 0
    failed_at: float = 0.0
    boots: Boots = Boots()
    # Of this process only:
    is_current: bool = False
    was_shown: bool = False
    """Its instances have been seen."""
    updated_at: float = 0.0
    error: str = ""
    starting_at: float | None = None
    """Since then its plugin is being started; None: it is not."""
    info: ProviderInfo | None = None
    quota: int | None = None
    sightings: tuple[Sighting, ...] = ()
    """What happened to its instances though nobody here had asked for it."""
    verdict: Verdict = Verdict()
    gone: dict[str, float] = {}
    """Instances that were gone when they were first shown, and when they were last."""

    @property
    def effective(self) -> Limits:
        """A group gives no more than it says, nor than its provider allows."""
        limits = [self.quota, None if self.info is None else self.info.max_size, self.limits.quota]
        return replace(self.limits, quota=min((one for one in limits if one is not None), default=None))

    @property
    def note(self) -> str:
        """What its operator should know, and mend."""
        return "; ".join(filter(None, (self._too_small, self.verdict.advice)))

    @property
    def _too_small(self) -> str:
        """A maximum that cannot be reached, with both numbers."""
        if self.info is None or self.limits.max_instances <= self.info.max_size:
            return ""
        return (
            f"max_instances is {self.limits.max_instances}, but the group can have {self.info.max_size} at most, so "
            "there will be no more than that; raise the group's maximum at its provider, or lower max_instances"
        )

    @property
    def plugin(self) -> str:
        return "" if self.info is None else f"{self.info.id} {self.info.version}".strip()

    def note_sightings(self, now: float, *more: Sighting) -> None:
        """Look again at what its provider does; with this, too."""
        if more or self.sightings:
            self.sightings = drop_old((*self.sightings, *more), now)
            self.verdict = judge(self.sightings)

    def note_failure(self, now: float, error: str) -> None:
        """A creation came to nothing."""
        self.failures += 1
        self.failed_at = now
        self.error = error

    def note_success(self, boot_seconds: float | None) -> None:
        """An instance got ready, after so long if that is known."""
        self.failures = 0
        if boot_seconds is not None:
            self.boots = self.boots.with_boot(boot_seconds)

    def as_group(self, under_way: Iterable[float]) -> Group:
        """As a plan wants it; `under_way` are the ages of what is not ready yet."""
        return Group(
            name=self.name,
            limits=self.effective,
            bucket=self.bucket,
            failures=self.failures,
            failed_at=self.failed_at,
            is_current=self.is_current,
            boot_seconds=estimate(self.boots, under_way),
        )
