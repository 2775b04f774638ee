"""State of one instance group: limits, failed creations, boot times, and changes that the provider makes itself. Pure.
`roster` holds one for each group, and `loop.group_watch` enters what the plugin reports."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from remuda.fleeting.port import ProviderInfo
from remuda.taskscaler.core.boot import Boots, estimate
from remuda.taskscaler.core.rebalancing import Sighting, Verdict, drop_old, judge
from remuda.taskscaler.core.values import Bucket, Group, Limits


class GroupState(msgspec.Struct, kw_only=True):
    """State of one instance group. The state file stores the fields up to `boots`, except `limits`."""

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
    """At least one update succeeded in this process."""
    updated_at: float = 0.0
    error: str = ""
    starting_at: float | None = None
    """When the start of its plugin began; None: it is not being started."""
    info: ProviderInfo | None = None
    quota: int | None = None
    sightings: tuple[Sighting, ...] = ()
    """Instances that appeared or disappeared without a request of this scaler, and given up requests; see
    `rebalancing`."""
    verdict: Verdict = Verdict()
    gone: dict[str, float] = {}
    """Instances that are listed as deleted and are not in the roster, with the time when they were last listed."""

    @property
    def effective(self) -> Limits:
        """The configured limits, but as quota the lowest of: configured quota, plugin's maximum, provider's quota."""
        limits = [self.quota, None if self.info is None else self.info.max_size, self.limits.quota]
        return replace(self.limits, quota=min((limit for limit in limits if limit is not None), default=None))

    @property
    def note(self) -> str:
        """Text for the operator: which settings of the runner or the provider to correct; empty if there are none."""
        return "; ".join(filter(None, (self._too_small, self.verdict.advice)))

    @property
    def _too_small(self) -> str:
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
        """Add changes not caused by this manager, drop old ones, and judge again which the provider makes itself."""
        if more or self.sightings:
            self.sightings = drop_old((*self.sightings, *more), now)
            self.verdict = judge(self.sightings)

    def note_failure(self, now: float, error: str) -> None:
        self.failures += 1
        self.failed_at = now
        self.error = error

    def note_success(self, boot_seconds: float | None) -> None:
        self.failures = 0
        if boot_seconds is not None:
            self.boots = self.boots.with_boot(boot_seconds)

    def as_group(self, under_way: Iterable[float]) -> Group:
        """The group as input of a plan. `under_way`: ages in seconds of instances that are not ready yet."""
        return Group(
            name=self.name,
            limits=self.effective,
            bucket=self.bucket,
            failures=self.failures,
            failed_at=self.failed_at,
            is_current=self.is_current,
            boot_seconds=estimate(self.boots, under_way),
        )
