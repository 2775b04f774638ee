"""Trying again what may pass, within a bound; and the few things of an environment that concern fetching.

A job waits for this silently, so the bound is short: a minute. Which failure may pass is known where it happens.
"""

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
"""Who is in between, and who is believed."""
OF_JOBS = (*TRUST, "CI_SERVER_URL", "DOCKER_AUTH_CONFIG", "CI_REGISTRY", "CI_REGISTRY_USER", "CI_REGISTRY_PASSWORD")
CREDENTIALS = ("HOME", "DOCKER_CONFIG")
"""Where the agent's own lie."""
OF_THE_AGENT = (*OF_JOBS, *CREDENTIALS, "PATH", "TMPDIR", "LD_LIBRARY_PATH")

T = TypeVar("T")


def select_env(env: Mapping[str, str]) -> dict[str, str]:
    """What of a job's environment, before that of this process, has to do with reaching servers.

    A job must not say which git the agent runs; nor does it get the agent's own credentials sent along a way that
    it has laid itself.
    """
    own = {name: value for name, value in os.environ.items() if name in OF_THE_AGENT}
    job = {name: value for name, value in env.items() if name in OF_JOBS}
    if any(own.get(name) != value for name, value in job.items() if name in TRUST):
        own = {name: value for name, value in own.items() if name not in CREDENTIALS}
    return own | job


async def retry(clock: Clock, call: Callable[[], Awaitable[T]], *, patience_seconds: float = PATIENCE_SECONDS) -> T:
    """Call until it works, fails for good, or the time is up."""
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
