"""Tries a plugin out from outside, in any language: does it do what hosts rely on, and if not, what is wrong.

The checks are lists in the order of a plugin's life: `program` has what needs no host, `table` what a host asks of a
plugin that runs, `ending` how it ends. One that fails ends its life only if the others stand on it. Whatever happens,
instances that were made are deleted, and what cannot be deleted is named. `remuda plugin check` prints the results.
"""

from collections.abc import AsyncGenerator

from remuda.fleeting.conformance import ending, program, table
from remuda.fleeting.conformance.life import Life, run_check
from remuda.fleeting.conformance.values import Check, Outcome, Result, Trial

__all__ = ["Check", "Outcome", "Result", "Trial", "names", "try_out"]


def names(trial: Trial) -> list[str]:
    """Of all checks, in order; those that stand on one that fails are not tried."""
    every = (*program.CHECKS, *table.checks(trial), table.NOTHING_LEFT, *ending.CHECKS)
    return [check.name for check in every]


async def try_out(trial: Trial) -> AsyncGenerator[Result, None]:
    """Results as they come."""
    for check in program.CHECKS:
        result = await _alone(check, trial)
        yield result
        if check.is_needed and result.outcome is Outcome.FAILED:
            return
    life = Life(trial)
    try:
        for check in table.checks(trial):
            result = await run_check(check, life)
            yield result
            if result.outcome is Outcome.FAILED and (check.is_needed or not life.is_running):
                break
    finally:
        left = await run_check(table.NOTHING_LEFT, life)
        await life.stop()
    yield left
    for check in ending.CHECKS:
        yield await _alone(check, trial)


async def _alone(check: Check, trial: Trial) -> Result:
    """With processes of its own."""
    life = Life(trial)
    try:
        return await run_check(check, life)
    finally:
        await life.stop()
