"""Opens and closes the manager's links (connections to agents, `link.py`), one for each machine in use. A link is
closed some seconds after its last use, so that consecutive jobs on a machine share a connection."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from remuda.lib.clock import Clock
from remuda.manager.environments.port import Environment
from remuda.manager.jobs.link import AgentLink, Inspect

LINGER_SECONDS = 5.0
"""How long an unused link stays open."""


class _OpenLink:
    __slots__ = ("idle_since", "link", "task", "users")

    def __init__(self, link: AgentLink, task: asyncio.Task[None]) -> None:
        self.link = link
        self.task = task
        self.users = 0
        self.idle_since = 0.0


class Links:
    """The open links to agents. `start` runs a function as a named task; `inspect` is awaited on new connections."""

    def __init__(
        self,
        clock: Clock,
        start: Callable[[str, Callable[[], Awaitable[None]]], asyncio.Task[None]],
        *,
        inspect: Inspect | None = None,
    ) -> None:
        self._clock = clock
        self._start = start
        self._inspect = inspect
        self._open: dict[tuple[int, str], _OpenLink] = {}

    def __iter__(self) -> Iterator[AgentLink]:
        return iter([entry.link for entry in self._open.values()])

    def use(self, environment: Environment, machine: str) -> AgentLink:
        """Return the link to a machine's agent; open it if needed. Callers must call `let_go` when they are done."""
        key = (id(environment), machine)
        entry = self._open.get(key)
        if entry is None:
            link = AgentLink(environment, machine, self._clock, inspect=self._inspect)
            entry = self._open[key] = _OpenLink(link, self._start(f"agent link to {machine}", link.run))
        entry.users += 1
        return entry.link

    def let_go(self, link: AgentLink) -> None:
        entry = self._open.get((id(link.environment), link.machine))
        if entry is not None:
            entry.users -= 1
            entry.idle_since = self._clock.monotonic()

    def close_idle(self) -> None:
        """Close links that no caller has used for LINGER_SECONDS. Called every second."""
        now = self._clock.monotonic()
        for key, entry in list(self._open.items()):
            if not entry.users and now - entry.idle_since >= LINGER_SECONDS:
                entry.task.cancel()
                del self._open[key]

    def close(self) -> None:
        for entry in self._open.values():
            entry.task.cancel()
        self._open.clear()
