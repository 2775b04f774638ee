"""Metrics of one service, in a separate registry, because one process may run several services. The Prometheus library
is imported at the first scrape, because that takes longer than a short job."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

T = TypeVar("T")


class Registry:
    def __init__(self) -> None:
        self.families: list[Callable[[], Metric]] = []
        self.refreshers: list[Callable[[], None]] = []
        """Functions that are called before each scrape, to update gauges that are not updated on every change."""


class Number:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, by: float = 1) -> None:
        self.value += by

    def set(self, value: float) -> None:
        self.value = value


class Spread:
    """The values of a histogram: how many observations each bucket has, and the sum of the observed values."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class _Labelled(Generic[T]):
    """A metric with one child for each set of label values. Without labels it has one child."""

    def __init__(self, labels: Sequence[str], new: Callable[[], T]) -> None:
        self._new = new
        self.names = tuple(labels)
        self.parts: dict[tuple[str, ...], T] = {} if labels else {(): new()}

    def labels(self, *values: str) -> T:
        """The child with these label values, in the order of the label names. It is created if missing."""
        part = self.parts.get(values)
        if part is None:
            if len(values) != len(self.names):
                raise ValueError(f"{len(self.names)} labels are needed ({', '.join(self.names)}), not {values}")
            part = self.parts[values] = self._new()
        return part


class Counter(_Labelled[Number]):
    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, registry: Registry) -> None:
        super().__init__(labels, Number)
        registry.families.append(lambda: self._family(name, text))

    def inc(self, by: float = 1) -> None:
        self.labels().inc(by)

    def _family(self, name: str, text: str) -> "Metric":
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(name, text, labels=self.names)
        for values, number in self.parts.items():
            family.add_metric(values, number.value)
        return family


class Gauge(_Labelled[Number]):
    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, registry: Registry) -> None:
        super().__init__(labels, Number)
        registry.families.append(lambda: self._family(name, text))

    def set(self, value: float) -> None:
        self.labels().set(value)

    def _family(self, name: str, text: str) -> "Metric":
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(name, text, labels=self.names)
        for values, number in self.parts.items():
            family.add_metric(values, number.value)
        return family


class Histogram(_Labelled[Spread]):
    """A Prometheus histogram. `buckets` are the inclusive upper bounds."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Iterable[float], registry: Registry
    ) -> None:
        self._bounds = tuple(buckets)
        super().__init__(labels, lambda: Spread(self._bounds))
        registry.families.append(lambda: self._family(name, text))

    def _family(self, name: str, text: str) -> "Metric":
        from prometheus_client.core import HistogramMetricFamily
        from prometheus_client.utils import floatToGoString

        family = HistogramMetricFamily(name, text, labels=self.names)
        ends = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, spread in self.parts.items():
            sums = [sum(spread.counts[: number + 1]) for number in range(len(ends))]
            family.add_metric(values, buckets=list(zip(ends, sums, strict=True)), sum_value=spread.sum)
        return family


def render(registry: Registry) -> bytes:
    """All metrics of a registry in the Prometheus text format."""
    from prometheus_client import generate_latest
    from prometheus_client.registry import Collector

    class RegistryCollector(Collector):
        def collect(self) -> "list[Metric]":
            return [family() for family in registry.families]

    for refresh in registry.refreshers:
        refresh()
    return generate_latest(RegistryCollector())
