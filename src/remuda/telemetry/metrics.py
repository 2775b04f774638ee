"""Metrics of one service: a registry of its own, because one process may host several services.

What each service counts stands in its own `metrics.py`; here is what they share: the registry and its text form.
"""

from prometheus_client import CollectorRegistry, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def new_registry() -> CollectorRegistry:
    """A registry without the process-wide default collectors."""
    return CollectorRegistry(auto_describe=True)


def render(registry: CollectorRegistry) -> bytes:
    """The registry as Prometheus reads it."""
    return generate_latest(registry)
