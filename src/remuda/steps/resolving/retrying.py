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
CONCERNING = (
    *(name for proxy in PROXIES for name in (proxy, proxy.upper())),
    "CI_SERVER_TLS_CA_FILE",
    "CI_SERVER_URL",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "DOCKER_AUTH_CONFIG",
    "DOCKER_CONFIG",
    "CI_REGISTRY",
    "CI_REGISTRY_USER",
    "CI_REGISTRY_PASSWORD",
    "HOME",
    "PATH",
    "TMPDIR",
    "LD_LIBRARY_PATH",
)

T = TypeVar("T")


def concerning(env: Mapping[str, str]) -> dict[str, str]:
    """What of a job's environment, before that of this process, has to do with reaching servers.

    HOME, PATH and the loader's folders are the agent's own: a job must not say which git the agent runs.
    """
    own = {name: value for name, value in os.environ.items() if name in CONCERNING}
    job = {name: value for name, value in env.items() if name in CONCERNING[:-4]}
    return own | job


async def patiently(clock: Clock, call: Callable[[], Awaitable[T]], *, patience_seconds: float = PATIENCE_SECONDS) -> T:
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
