"""Metrics in the Prometheus text format. Two services in one process count separately."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from remuda.telemetry.metrics import Counter, Gauge, Histogram, Registry, render


def read_samples(registry: Registry) -> dict[str, float]:
    """Return all samples by name and labels."""
    families = text_string_to_metric_families(render(registry).decode())
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in families
        for sample in family.samples
    }


def test_each_service_has_a_registry_of_its_own() -> None:
    first, second = Registry(), Registry()
    Counter("remuda_things_total", "Things.", registry=first).inc(3)
    Counter("remuda_things_total", "Things.", registry=second)
    assert b"remuda_things_total 3.0" in render(first)
    assert b"remuda_things_total 0.0" in render(second)


def test_labels_separate_values() -> None:
    registry = Registry()
    counter = Counter("things", "Things.", ("kind",), registry=registry)
    counter.labels("a").inc()
    counter.labels("a").inc()
    counter.labels('b"\n').inc(0.5)
    assert read_samples(registry) == {"things_total a": 2, 'things_total b"\n': 0.5}
    assert b"# HELP things_total Things.\n# TYPE things_total counter" in render(registry)
    with pytest.raises(ValueError, match="1 labels"):
        counter.labels("a", "b")


def test_a_gauge_shows_its_current_value() -> None:
    registry = Registry()
    gauge = Gauge("level", "Level.", registry=registry)
    gauge.set(3)
    gauge.labels().inc(-1)
    assert read_samples(registry) == {"level": 2}


def test_buckets_include_their_upper_bounds() -> None:
    registry = Registry()
    histogram = Histogram("took_seconds", "Time.", ("who",), buckets=(0.5, 1, 2), registry=registry)
    for value in (0.1, 0.5, 0.6, 1, 7):
        histogram.labels("a").observe(value)
    assert read_samples(registry) == {
        "took_seconds_bucket 0.5 a": 2,
        "took_seconds_bucket 1.0 a": 4,
        "took_seconds_bucket 2.0 a": 4,
        "took_seconds_bucket +Inf a": 5,
        "took_seconds_count a": 5,
        "took_seconds_sum a": pytest.approx(9.2),
    }


def test_refreshers_run_at_each_scrape() -> None:
    registry = Registry()
    gauge = Gauge("jobs", "Jobs.", ("state",), registry=registry)
    states = iter(("waiting", "running"))

    def refresh() -> None:
        gauge.parts.clear()
        gauge.labels(next(states)).set(1)

    registry.refreshers.append(refresh)
    assert read_samples(registry) == {"jobs waiting": 1}
    assert read_samples(registry) == {"jobs running": 1}
