"""Limits the total size of the step results of a job, which are accepted in order and without a gap. The first result
above the limit is replaced by a note (`event` is `cut`); later ones are accepted but not stored, so the job goes on.
Invariant: the stored results of a job have at most the limit in bytes, plus one note."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from remuda.cell.values import StepResult

CUT = "cut"
"""The field `event` of the note."""


def select_results(
    last: StepResult | None, results: Sequence[StepResult], limit_bytes: int
) -> tuple[list[StepResult], int]:
    """Return the results to store after `last`, the last stored one, and the next expected sequence number. Leaves out
    results that are stored already or follow a gap; above `limit_bytes`, one note about the limit replaces the rest."""
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
    body = {
        "version": 1,
        "seq": result.seq,
        "event": CUT,
        "note": f"the step results of a job are limited to {limit_bytes} bytes; later ones are not stored",
    }
    return replace(result, body=msgspec.Raw(msgspec.json.encode(body)), is_note=True)
