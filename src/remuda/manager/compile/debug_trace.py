"""Decides whether the commands of a job's scripts are traced, as its variable CI_DEBUG_TRACE asks. Pure code.

Traced are the scripts of the job and of the runner's hooks around it, but not the runner's own work, such as the
checkout. Values of masked variables stay hidden in the log."""

from collections.abc import Iterable

from remuda.manager.compile.step_entries import Entry
from remuda.manager.compile.variables import TRUE_WORDS, Variables
from remuda.manager.config.values import RunnerConfig

VARIABLE = "CI_DEBUG_TRACE"


def trace_scripts(entries: Iterable[Entry], runner: RunnerConfig, variables: Variables) -> list[Entry]:
    """Return the entries; if the job asks for it and the runner allows it, those that run a script print each
    command."""
    if not has_trace(runner, variables):
        return list(entries)
    return [_trace(entry) if entry.get("step") == "builtin://script" else entry for entry in entries]


def has_trace(runner: RunnerConfig, variables: Variables) -> bool:
    """True if the job asks for a trace and the runner allows it."""
    return _is_requested(variables) and not runner.debug_trace_disabled


def _trace(entry: Entry) -> Entry:
    return entry | {"inputs": entry["inputs"] | {"debug_trace": True}}


def trace_remarks(runner: RunnerConfig, variables: Variables) -> Iterable[str]:
    """Yield a warning if the job asks for a trace: that it may show secrets, or that the runner has disabled it."""
    if not _is_requested(variables):
        return
    if runner.debug_trace_disabled:
        yield f"{VARIABLE} has no effect: this runner has disabled it (debug_trace_disabled)"
    else:
        yield f"{VARIABLE} is enabled: the log may show secrets that are not masked, to everybody who can read it"


def _is_requested(variables: Variables) -> bool:
    return variables[VARIABLE].lower() in TRUE_WORDS
