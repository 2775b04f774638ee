"""Conformance checks for instance group plugins in any language. `remuda plugin check` prints the results.

Checks run in the order of a plugin's life. A failed check stops the rest only if they depend on it. Created instances
are deleted in any case; those that cannot be deleted are listed."""

from collections.abc import AsyncGenerator

from remuda.fleeting.conformance import calls, ending, program
from remuda.fleeting.conformance.life import Life, run_check
from remuda.fleeting.conformance.values import Check, Outcome, Result, Trial

__all__ = ["Check", "Outcome", "Result", "Trial", "names", "try_out"]


def names(trial: Trial) -> list[str]:
    """The names of all checks of a run in order, also of those that the run will skip after a failed check."""
    every = (*program.CHECKS, *_checks_of_calls(trial), calls.clean_up, *ending.CHECKS)
    return [check.name for check in every]


def _checks_of_calls(trial: Trial) -> list[Check]:
    """Checks that call a running plugin, with the SSH login if `trial.is_connecting`. `clean_up` runs separately."""
    return [check for check in calls.CHECKS[:-1] if trial.is_connecting or check is not calls.log_in]


async def try_out(trial: Trial) -> AsyncGenerator[Result, None]:
    """Run the checks of a plugin in order, and yield the result of each. Skips checks that depend on a failed one."""
    for check in program.CHECKS:
        result = await _alone(check, trial)
        yield result
        if check.is_needed and result.outcome is Outcome.FAILED:
            return
    life = Life(trial)
    try:
        for check in _checks_of_calls(trial):
            result = await run_check(check, life)
            yield result
            if result.outcome is Outcome.FAILED and (check.is_needed or not life.is_running):
                break
    finally:
        cleanup = await run_check(calls.clean_up, life)
        await life.stop()
    yield cleanup
    for check in ending.CHECKS:
        yield await _alone(check, trial)


async def _alone(check: Check, trial: Trial) -> Result:
    life = Life(trial)
    try:
        return await run_check(check, life)
    finally:
        await life.stop()
