"""What a run does first, so that it overlaps: the agent starts in its own process, the large imports in a thread.

Both take longer than anything that comes before the first job. Nothing of the platform is decided here; `remuda run`
is the caller. This module itself imports next to nothing.

Invariant: an agent that was started here has ended, at the latest, when `early_agent` is left.
"""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

NO_PROXY = ("127.0.0.1", "localhost", "::1")
LARGE = ("remuda.cli.embedded", "remuda.cli.local_agent", "remuda.cli.follow")
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def begin_imports(*, with_certificates: bool) -> None:
    """Import what the platform is made of, in the background. Whoever imports it meanwhile waits for that.

    The HTTP library reads the certificates of the machine whenever it is imported, twice, for connections that nobody
    makes here: a run talks to itself. Only a pipeline that may include remote files has use for them.
    """

    def work() -> None:
        kept = {name: os.environ.get(name) for name in CERTIFICATES}
        if not with_certificates:
            os.environ.update(dict.fromkeys(CERTIFICATES, os.devnull))
        try:
            import_module("aiohttp.connector")
        finally:
            for name, value in kept.items():
                if value is not None:
                    os.environ[name] = value
                elif not with_certificates:
                    os.environ.pop(name, None)
        for name in LARGE:
            import_module(name)

    threading.Thread(target=work, name="imports", daemon=True).start()


@contextmanager
def early_agent(manager_data: Path, *, idle_exit_seconds: float) -> Iterator[int]:
    """An agent that starts at once; its process number. A run that comes so far ends it by itself."""
    from remuda.manager.adapters.agent_process import spawn_agent

    pid = spawn_agent(manager_data, idle_exit_seconds=idle_exit_seconds)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError, ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                os.kill(pid, signal.SIGTERM)
                os.waitpid(pid, 0)


def keep_off_proxies(names: Sequence[str] = NO_PROXY) -> None:
    """Jobs reach the cell on loopback; no proxy of the user's environment can do that for them."""
    for variable in ("no_proxy", "NO_PROXY"):
        known = [name for name in os.environ.get(variable, "").split(",") if name]
        os.environ[variable] = ",".join(dict.fromkeys([*known, *names]))
