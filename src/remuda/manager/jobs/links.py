"""Which links are open: one for each machine of an environment that somebody uses, and those of standing machines.

A link is opened by the first job that uses it and closed a while after the last one let go, so that jobs that follow
each other on a machine share a connection. Nothing here knows what a job is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from remuda.lib.clock import Clock
from remuda.manager.environments.port import Environment
from remuda.manager.jobs.link import AgentLink, Inspect

LINGER_SECONDS = 5.0
"""How long a link stays open that nobody uses."""


class _Open:
    __slots__ = ("idle_since", "link", "task", "users")

    def __init__(self, link: AgentLink, task: asyncio.Task[None]) -> None:
        self.link = link
        self.task = task
        self.users = 0
        self.idle_since = 0.0


class Links:
    """The open links. `start` makes a supervised task of a link's work."""

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
        self._open: dict[tuple[int, str], _Open] = {}

    def __iter__(self) -> Iterator[AgentLink]:
        return iter([one.link for one in self._open.values()])

    def use(self, environment: Environment, machine: str) -> AgentLink:
        """The link to a machine, which stays open until it is let go as often as it was used."""
        key = (id(environment), machine)
        found = self._open.get(key)
        if found is None:
            link = AgentLink(environment, machine, self._clock, inspect=self._inspect)
            found = self._open[key] = _Open(link, self._start(f"agent link to {machine}", link.run))
        found.users += 1
        return found.link

    def let_go(self, link: AgentLink) -> None:
        """One user less."""
        found = self._open.get((id(link.environment), link.machine))
        if found is not None:
            found.users -= 1
            found.idle_since = self._clock.monotonic()

    def close_idle(self) -> None:
        """Close what nobody uses any more; called now and then."""
        now = self._clock.monotonic()
        for key, one in list(self._open.items()):
            if not one.users and now - one.idle_since >= LINGER_SECONDS:
                one.task.cancel()
                del self._open[key]

    def close(self) -> None:
        """Close all."""
        for one in self._open.values():
            one.task.cancel()
        self._open.clear()
