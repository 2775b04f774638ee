"""Tokens that end: a runner gets a new one when three quarters of the old one's life are over, as gitlab-runner does.

Decides when that is (`due_at`, pure). The new token is written to the file, comments kept; the manager finds it there
as any other change. A token out of the environment is left alone, and so is a runner with the flag
FF_DISABLE_AUTOMATIC_TOKEN_ROTATION: both are said once. The old token ends when the server has made the new one, so the
file is looked at before that is asked for, and a manager that is told to stop waits for the answer.
"""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.lib.clock import Clock
from remuda.lib.waiting import carried_through
from remuda.manager.config.file import ConfigFile
from remuda.manager.config.load import RunnerConfig, load, short_token
from remuda.manager.errors import ConfigError, RegisterError
from remuda.manager.registration.runner_entries import Chosen, chosen, reset_tokens, unwritable
from remuda.telemetry.logs import logger

SHARE = 0.75
FLAG = "FF_DISABLE_AUTOMATIC_TOKEN_ROTATION"
LOOK_SECONDS = 600.0
"""How often is looked; a token lives for days, and a server that is away is asked again by then."""
WITHOUT_BEGIN_SECONDS = 24 * 3600.0
"""How long before its end a token is renewed whose beginning nobody knows."""


def due_at(runner: RunnerConfig) -> float | None:
    """When the runner's token is to be renewed, in seconds since the epoch; None: never."""
    if runner.feature_flags.get(FLAG):
        return None
    ends, began = _moment(runner.token_expires_at), _moment(runner.token_obtained_at)
    if ends is None:
        return None
    if began is None or began >= ends:
        return ends - WITHOUT_BEGIN_SECONDS
    return began + (ends - began) * SHARE


class Rotation:
    """Renews the tokens of a file's runners."""

    def __init__(self, path: Path, clock: Clock, *, saved: Callable[[bool], None] = lambda _: None) -> None:
        """`saved` is told True when the file has a new token in it, False when it should and cannot."""
        self._path = path
        self._saved = saved
        self._clock = clock
        self._log = logger("manager")
        self._said: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Renew what is due."""
        try:
            runners = load(self._path).config.runners
        except ConfigError:
            return  # whoever reads the file for its values says what is wrong
        for runner in runners:
            due = due_at(runner)
            if due is not None and due <= self._clock.wall():
                await carried_through(self._renew(runner), name=f"renewal of {runner.short_token}")

    async def _renew(self, runner: RunnerConfig) -> None:
        wish = Chosen(token=runner.token, url=runner.url)
        try:
            file = ConfigFile.read(self._path)
            if problem := unwritable(file, chosen(file, wish)[0]):
                self._say(f"a runner's token is to be renewed, but {problem}")
                self._saved(False)
                return
            [renewed] = await reset_tokens(self._path, wish, clock=self._clock)
        except (ConfigError, RegisterError) as error:
            self._say(f"a runner's token cannot be renewed: {error}")
            return
        self._saved(True)
        self._log.info(
            "a runner has a new token", runner=renewed.name, old=short_token(runner.token), new=renewed.short
        )

    def _say(self, problem: str) -> None:
        """Once: it would be true at every look."""
        if problem not in self._said:
            self._said.add(problem)
            self._log.warning(problem)


def _moment(value: Any) -> float | None:
    """The time of a TOML date or of a text; None where there is none."""
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, dt.datetime) or value.year <= 1:
        return None
    return (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).timestamp()
