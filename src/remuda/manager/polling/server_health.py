"""Whether servers answer the calls of jobs. Logged once per runner when calls fail, and once when they succeed again.

While all slots have jobs, no poller sends requests, so only the jobs notice an outage. `job.py` reports every call;
`poller.py` includes the problem in the runner's health.
"""

from collections import Counter

from remuda.telemetry.logs import logger


class ServerHealth:
    """Counts jobs by runner (short token), and those whose last call got no answer."""

    __slots__ = ("_jobs", "_log", "_unanswered")

    def __init__(self) -> None:
        self._jobs: Counter[str] = Counter()
        self._unanswered: dict[str, dict[str, str]] = {}
        self._log = logger("manager")

    def add_job(self, runner: str) -> None:
        self._jobs[runner] += 1

    def remove_job(self, runner: str, key: str) -> None:
        self._jobs[runner] -= 1
        self._clear(runner, key)

    def note_failure(self, runner: str, key: str, cause: str) -> None:
        """A job's call got no answer."""
        if runner not in self._unanswered:
            self._log.warning(
                "server cannot be reached; jobs wait", runner=runner, jobs=self._jobs[runner], cause=cause
            )
        self._unanswered.setdefault(runner, {})[key] = cause

    def note_answer(self, runner: str, key: str) -> None:
        """A job's call was answered. The server counts as back when no job has an unanswered call."""
        if self._clear(runner, key):
            self._log.info("server answers jobs again", runner=runner)

    def problem(self, runner: str) -> str:
        """The outage in words; empty: all jobs of the runner get answers."""
        causes = self._unanswered.get(runner)
        if not causes:
            return ""
        number = "1 job waits" if len(causes) == 1 else f"{len(causes)} jobs wait"
        return f"the server cannot be reached; {number}: {next(reversed(causes.values()))}"

    def _clear(self, runner: str, key: str) -> bool:
        """True if this was the last unanswered job of the runner."""
        causes = self._unanswered.get(runner, {})
        if causes.pop(key, None) is None or causes:
            return False
        del self._unanswered[runner]
        return True
