"""Tracks whether servers answer the calls of running jobs. Logs once per runner when calls fail, and when they succeed
again. While all slots are used by jobs, no poller sends requests, so only the jobs notice an outage."""

from collections import Counter

from remuda.telemetry.logs import logger


class ServerHealth:
    """Counts, by runner (short token), all jobs, and the jobs whose last call to the server got no answer."""

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
        """Record that a call of a job (`key`) got no answer. The first such job of a runner is logged."""
        if runner not in self._unanswered:
            self._log.warning(
                "server cannot be reached; jobs continue and send their results later",
                runner=runner,
                jobs=self._jobs[runner],
                cause=cause,
            )
        self._unanswered.setdefault(runner, {})[key] = cause

    def note_answer(self, runner: str, key: str) -> None:
        """Record an answered call; logs that the server is back if this was the runner's only job without answers."""
        if self._clear(runner, key):
            self._log.info("server reachable again; running jobs send their logs and results", runner=runner)

    def problem(self, runner: str) -> str:
        """Return a text about the outage of a runner's server, or an empty string if all its jobs get answers."""
        causes = self._unanswered.get(runner)
        if not causes:
            return ""
        number = "1 job waits" if len(causes) == 1 else f"{len(causes)} jobs wait"
        return f"the server cannot be reached; {number}: {next(reversed(causes.values()))}"

    def _clear(self, runner: str, key: str) -> bool:
        """Forget a job's unanswered call. Returns True if it had one, and no other job of the runner has one."""
        causes = self._unanswered.get(runner, {})
        if causes.pop(key, None) is None or causes:
            return False
        del self._unanswered[runner]
        return True
