"""Renews runner tokens after three quarters of their lifetime, as gitlab-runner does.

A token from an environment variable is not renewed, nor that of a runner with FF_DISABLE_AUTOMATIC_TOKEN_ROTATION. The
old token becomes invalid when the server creates the new one. So the manager checks before the call that its
configuration file is writable, and a manager that stops waits for the answer."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.lib.clock import Clock
from remuda.lib.tasks import finish_despite_cancel
from remuda.manager.config.file import ConfigFile
from remuda.manager.config.load import load
from remuda.manager.config.values import RunnerConfig, short_token
from remuda.manager.errors import ConfigError, RegisterError
from remuda.manager.registration.runner_entries import Selection, reset_tokens, select_entries, unwritable_reason
from remuda.telemetry.logs import logger

SHARE = 0.75
FLAG = "FF_DISABLE_AUTOMATIC_TOKEN_ROTATION"
LOOK_SECONDS = 600.0
"""Interval of the checks, and pause after a failed renewal."""
WITHOUT_BEGIN_SECONDS = 24 * 3600.0
"""How long before its end a token is renewed if its start is unknown."""


def due_at(runner: RunnerConfig) -> float | None:
    """Return when a runner's token is due for renewal, in seconds since the epoch; None: never."""
    if runner.feature_flags.get(FLAG):
        return None
    ends, began = _moment(runner.token_expires_at), _moment(runner.token_obtained_at)
    if ends is None:
        return None
    if began is None or began >= ends:
        return ends - WITHOUT_BEGIN_SECONDS
    return began + (ends - began) * SHARE


class TokenRotation:
    def __init__(self, path: Path, clock: Clock, *, on_save: Callable[[bool], None] = lambda _: None) -> None:
        """`path` is the configuration file. `on_save` is called with True after a new token was written there, with
        False if one is due but the file or the section cannot be changed; the token is not renewed then."""
        self._path = path
        self._on_save = on_save
        self._clock = clock
        self._log = logger("manager")
        self._logged: set[str] = set()

    async def run(self) -> None:
        while True:
            await self.renew_due()
            await self._clock.sleep(LOOK_SECONDS)

    async def renew_due(self) -> None:
        try:
            runners = load(self._path).config.runners
        except ConfigError:
            return  # the reload logs what is wrong
        for runner in runners:
            due = due_at(runner)
            if due is not None and due <= self._clock.wall():
                await finish_despite_cancel(self._renew(runner), name=f"renewal of {runner.short_token}")

    async def _renew(self, runner: RunnerConfig) -> None:
        selection = Selection(token=runner.token, url=runner.url)
        try:
            file = ConfigFile.read(self._path)
            if problem := unwritable_reason(file, select_entries(file, selection)[0]):
                self._log_once(runner, problem)
                self._on_save(False)
                return
            [renewed] = await reset_tokens(self._path, selection, clock=self._clock)
        except (ConfigError, RegisterError) as error:
            self._log_once(runner, str(error))
            return
        self._on_save(True)
        self._log.info("runner token renewed", runner=renewed.name, old=short_token(runner.token), new=renewed.short)

    def _log_once(self, runner: RunnerConfig, cause: str) -> None:
        if cause not in self._logged:
            self._logged.add(cause)
            self._log.warning(
                "cannot renew a runner's token; trying again later",
                runner=runner.name or runner.short_token,
                cause=cause,
            )


def _moment(value: Any) -> float | None:
    """Convert a TOML date or an RFC 3339 text to seconds since the epoch; None if it is neither, or in the year 1."""
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, dt.datetime) or value.year <= 1:
        return None
    return (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).timestamp()
