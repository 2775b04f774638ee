"""How much of a job's step results is kept.

Decided here: that results are taken in order and without a gap, that a job's have a limit in bytes, and what becomes of
those beyond it: one note in their place says so, and all that follow are taken and dropped, so the job goes on and its
runner need not know. Pure; the stores call it inside of their transactions, `remuda.cell.core.jobs.lost_attempts` knows
the note.

Invariant: what is stored of a job has at most the limit, and a note that is shorter than any result should be.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from remuda.cell.values import StepResult

CUT = "cut"
"""The event of the note."""


def select_results(
    last: StepResult | None, results: Sequence[StepResult], limit_bytes: int
) -> tuple[list[StepResult], int]:
    """What is to be stored of results that came, after the last one that is, and the next number that is wanted."""
    following = last.seq + 1 if last else 1
    total = last.total_bytes if last else 0
    is_full = last is not None and last.is_note
    new: list[StepResult] = []
    for result in sorted(results, key=lambda result: result.seq):
        if is_full:
            following = max(following, result.seq + 1)
        elif result.seq == following:
            total += len(bytes(result.body))
            is_full = total > limit_bytes
            new.append(_note(result, limit_bytes) if is_full else replace(result, total_bytes=total))
            following += 1
    return new, following


def _note(result: StepResult, limit_bytes: int) -> StepResult:
    said = {
        "version": 1,
        "seq": result.seq,
        "event": CUT,
        "note": f"the step results of a job may have {limit_bytes} bytes; from here on none are kept",
    }
    return replace(result, body=msgspec.Raw(msgspec.json.encode(said)), is_note=True)
