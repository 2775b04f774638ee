"""Two services in one process count apart from each other."""

from prometheus_client import Counter

from remuda.telemetry.metrics import new_registry, render


def test_each_service_has_a_registry_of_its_own() -> None:
    first, second = new_registry(), new_registry()
    Counter("remuda_things_total", "Things.", registry=first).inc(3)
    Counter("remuda_things_total", "Things.", registry=second)
    assert b"remuda_things_total 3.0" in render(first)
    assert b"remuda_things_total 0.0" in render(second)
