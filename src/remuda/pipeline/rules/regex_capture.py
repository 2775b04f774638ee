"""What a regular expression takes out of a text, in time that no expression can blow up.

Decided here: which of several possible matches counts (the leftmost, and of those the one that a reader of the
expression would follow first) and what it yields. As in `patterns` all ways are followed at once; each carries where
its groups begin and end. The cell asks this for `coverage`.
"""

from __future__ import annotations

from collections.abc import Callable

from remuda.pipeline.rules.regex_match import Pattern, is_at

# Where the groups of one way through the expression begin and end; None: it has begun.
_Spans = dict[int, tuple[int, int | None]]
_WHOLE = 0


def last_match(pattern: Pattern, text: str, spend: Callable[[int], None]) -> str | None:
    """The last match's last group, or the whole match where no group took part. `spend` hears of the steps."""
    if pattern.needed not in text:
        return None
    last: str | None = None
    at = 0
    while at <= len(text) and (spans := _search(pattern, text, at, spend)) is not None:
        begin, end = next(span for _, span in sorted(spans.items(), reverse=True) if span[1] is not None)
        last = text[begin:end]
        begin, end = spans[_WHOLE]
        at = max(end or 0, begin + 1)
    return last


def _search(pattern: Pattern, text: str, at: int, spend: Callable[[int], None]) -> _Spans | None:
    """The groups of the first match from `at` on."""
    threads: list[tuple[int, _Spans]] = []
    found: _Spans | None = None
    for index in range(at, len(text) + 1):
        if found is None:
            # A match may begin at every character, but one that has begun before is preferred.
            threads.append((0, {_WHOLE: (index, None)}))
        elif not threads:
            break
        waiting, ended = _reached(pattern, threads, text, index, spend)
        found = ended or found
        threads = []
        if index < len(text):
            character = text[index]
            for state, spans in waiting:
                op = pattern.ops[state]
                if op[0] == "one" and op[1](character):
                    threads.append((state + 1, spans))
    return found


def _reached(
    pattern: Pattern, threads: list[tuple[int, _Spans]], text: str, index: int, spend: Callable[[int], None]
) -> tuple[list[tuple[int, _Spans]], _Spans | None]:
    """The ways that wait for a character, the preferred ones first; and the match that ends here, which cuts off
    those that are preferred less."""
    seen: set[int] = set()
    waiting: list[tuple[int, _Spans]] = []
    ended: _Spans | None = None
    ways = list(reversed(threads))
    while ways and ended is None:
        state, spans = ways.pop()
        if state in seen:
            continue
        seen.add(state)
        op = pattern.ops[state]
        if op[0] == "one":
            waiting.append((state, spans))
        elif op[0] == "fork":
            ways += ((op[2], spans), (op[1], spans))
        elif op[0] == "end":
            ended = {**spans, _WHOLE: (spans[_WHOLE][0], index)}
        elif op[0] == "save":
            ways.append((state + 1, {**spans, op[1]: (index, None) if op[2] else (spans[op[1]][0], index)}))
        elif is_at(op[1], text, index):
            ways.append((state + 1, spans))
    spend(len(seen))
    return waiting, ended
