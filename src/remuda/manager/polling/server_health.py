"""Whether servers answer the calls of jobs: said once per runner when one does not, and once when it does again.

Pollers say so of requests for jobs; but while all slots have jobs nobody asks for one, and then only jobs can tell.
`jobs.py` tells of every call, `polling.py` counts it for the runner's health. When a call is made again is decided in
`core/life.py`.
"""

from collections import Counter

from remuda.telemetry.logs import logger


class Hearing:
    """The jobs of a manager, and those whose last call got no answer; runners by their short tokens."""

    __slots__ = ("_jobs", "_log", "_unheard")

    def __init__(self) -> None:
        self._jobs: Counter[str] = Counter()
        self._unheard: dict[str, dict[str, str]] = {}
        self._log = logger("manager")

    def begin(self, runner: str) -> None:
        """One more job will call."""
        self._jobs[runner] += 1

    def over(self, runner: str, key: str) -> None:
        """A job calls no more; whether its server answers is then for others to tell."""
        self._jobs[runner] -= 1
        self._forget(runner, key)

    def unanswered(self, runner: str, key: str, cause: str) -> None:
        """Nobody answered a job's call."""
        if runner not in self._unheard:
            text = "the server cannot be reached; jobs wait"
            self._log.warning(text, runner=runner, jobs=self._jobs[runner], cause=cause)
        self._unheard.setdefault(runner, {})[key] = cause

    def answered(self, runner: str, key: str) -> None:
        """A job's call was answered; the server is back when all that it had not answered were."""
        if self._forget(runner, key):
            self._log.info("the server answers jobs again", runner=runner)

    def problem(self, runner: str) -> str:
        """For whoever looks at a runner; empty: its jobs are answered."""
        waiting = self._unheard.get(runner)
        if not waiting:
            return ""
        number = "1 job waits" if len(waiting) == 1 else f"{len(waiting)} jobs wait"
        return f"the server cannot be reached; {number}: {next(reversed(waiting.values()))}"

    def _forget(self, runner: str, key: str) -> bool:
        """Whether that was the last one."""
        waiting = self._unheard.get(runner, {})
        if waiting.pop(key, None) is None or waiting:
            return False
        del self._unheard[runner]
        return True
