"""Retries to fetch step packages until a time limit, and selects the environment variables for fetching.

A job does nothing while it waits, so the limit is short: a minute."""

import os
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.steps.resolving.errors import TemporaryResolveError

PATIENCE_SECONDS = 60.0
BACKOFF = Backoff(first_seconds=0.5, ceiling_seconds=10.0)
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
TRUST = (
    *(name for proxy in PROXIES for name in (proxy, proxy.upper())),
    "CI_SERVER_TLS_CA_FILE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
"""Variables that decide which proxy and which certificates are trusted."""
REGISTRY_LOGIN = ("CI_REGISTRY_USER", "CI_REGISTRY_PASSWORD")
"""The login for the registry in CI_REGISTRY."""
OF_JOBS = (*TRUST, "CI_SERVER_URL", "CI_REGISTRY", *REGISTRY_LOGIN, "DOCKER_AUTH_CONFIG")
CREDENTIALS = ("HOME", "DOCKER_CONFIG", "DOCKER_AUTH_CONFIG", *REGISTRY_LOGIN)
"""Variables with credentials, or with the folder in which credentials are stored."""
OF_THE_AGENT = (*OF_JOBS, *CREDENTIALS, "PATH", "TMPDIR", "LD_LIBRARY_PATH")

T = TypeVar("T")


def select_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for reaching servers (proxies, certificates, credentials): the agent's own, overridden by
    the job's. PATH is always the agent's, so a job cannot choose its git. If the job sets other proxies or
    certificates, the agent's credentials are left out, because they could be read on the way; if it sets another
    registry, the agent's registry login is left out."""
    own = {name: value for name, value in os.environ.items() if name in OF_THE_AGENT}
    job = {name: value for name, value in env.items() if name in OF_JOBS}
    changed = {name for name, value in job.items() if own.get(name) != value}
    unsafe: tuple[str, ...] = ()
    if changed.intersection(TRUST):
        unsafe = CREDENTIALS
    elif "CI_REGISTRY" in changed:
        unsafe = REGISTRY_LOGIN
    return {name: value for name, value in own.items() if name not in unsafe} | job


async def retry(clock: Clock, call: Callable[[], Awaitable[T]], *, patience_seconds: float = PATIENCE_SECONDS) -> T:
    """Repeat a call while it raises TemporaryResolveError with `is_away` (no server answers), for at most
    `patience_seconds`; then raise the last error. Other errors are raised at once."""
    until = clock.monotonic() + patience_seconds
    failures = 0
    while True:
        try:
            return await call()
        except TemporaryResolveError as error:
            failures += 1
            delay = max(BACKOFF.delay(failures, jitter=random.random()), error.retry_after or 0.0)
            if not error.is_away or clock.monotonic() + delay > until:
                raise
            await clock.sleep(delay)
