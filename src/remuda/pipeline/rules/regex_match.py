"""Whether a text matches a regular expression, in time that no expression can blow up.

Decided here: how an expression `/.../flags` of a rule, of `only`, of an input or of `coverage` is judged. All ways
through it are followed at once, character by character (Thompson's construction), so that the cost is length times
size and no backtracking exists; and `Patterns` gives one compilation a fixed allowance of such steps, so that very many
harmless rules cannot hold up a cell either.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from remuda.pipeline.rules.regex_syntax import (
    Choice,
    Edge,
    Fits,
    Group,
    One,
    PatternError,
    Repeat,
    Row,
    Tree,
    is_word,
    parse,
)

__all__ = ["Pattern", "PatternError", "Patterns", "TooCostlyError", "compile_pattern"]

MAX_PROGRAM = 2500
MAX_STEPS = 700_000

_LITERAL = re.compile(r"/(.*)/([imsU]*)", re.DOTALL)

# Of a fork the first way is the one that a match prefers. A save notes where a group begins or ends.
Op = (
    tuple[Literal["one"], Fits]
    | tuple[Literal["edge"], str]
    | tuple[Literal["fork"], int, int]
    | tuple[Literal["save"], int, bool]
    | tuple[Literal["end"]]
)


class TooCostlyError(Exception):
    """The regular expressions of one file together take too long."""


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled expression: operations, each of which goes on to the next one or, a fork, to two others."""

    ops: tuple[Op, ...]
    # A text that every match contains.
    needed: str = ""

    def found_in(self, text: str, spend: Callable[[int], None]) -> bool:
        """Whether the expression matches anywhere in the text. `spend` hears of the steps and may raise."""
        threads: list[int] = []
        for index in range(len(text) + 1):
            # A match may begin at every character.
            states = self._reached([*threads, 0], text, index, spend)
            if states and states[-1] < 0:
                return True
            if index < len(text):
                character = text[index]
                threads = []
                for state in states:
                    op = self.ops[state]
                    if op[0] == "one" and op[1](character):
                        threads.append(state + 1)
        return False

    def _reached(self, starts: list[int], text: str, index: int, spend: Callable[[int], None]) -> list[int]:
        """The operations that wait for a character here; ends with -1 where the whole expression has matched."""
        seen: set[int] = set()
        waiting: list[int] = []
        while starts:
            state = starts.pop()
            if state in seen:
                continue
            seen.add(state)
            op = self.ops[state]
            if op[0] == "one":
                waiting.append(state)
            elif op[0] == "fork":
                starts += (op[1], op[2])
            elif op[0] == "end":
                waiting.append(-1)
                break
            elif op[0] == "save" or is_at(op[1], text, index):
                starts.append(state + 1)
        spend(len(seen))
        return waiting


def compile_pattern(text: str, flags: str = "", *, with_groups: bool = False) -> Pattern:
    """The expression between the slashes, ready to use, or `PatternError`."""
    program = _Program(with_groups=with_groups)
    tree = parse(text, flags)
    program.emit(tree)
    program.add(("end",))
    return Pattern(ops=tuple(program.ops), needed=_needed(tree))


def _needed(tree: Tree) -> str:
    """The longest text that is plainly in every match."""
    runs = [""]
    parts = [tree]
    while parts:
        part = parts.pop()
        if isinstance(part, Row):
            parts.extend(reversed(part.parts))
        elif isinstance(part, Group):
            parts.append(part.part)
        elif isinstance(part, One) and part.literal:
            runs[-1] += part.literal
        else:
            runs += (_needed(part.part) if isinstance(part, Repeat) and part.low else "", "")
    return max(runs, key=len)


def split_literal(text: str) -> tuple[str, str] | None:
    """The expression and its flags out of `/.../flags`."""
    literal = _LITERAL.fullmatch(text)
    return (literal[1].replace("\\/", "/"), literal[2]) if literal else None


class Patterns:
    """The expressions of one compilation: each is compiled once, and all share one allowance of steps."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[str, str], Pattern] = {}
        self._answers: dict[tuple[str, str, str], bool] = {}
        self._steps = 0

    def compiled(self, text: str, flags: str = "") -> Pattern:
        """The compiled expression, or `PatternError`."""
        key = (text, flags)
        if key not in self._compiled:
            pattern = compile_pattern(text, flags)
            # To make an operation takes about three times as long as to pass one.
            self._spend(3 * len(pattern.ops))
            self._compiled[key] = pattern
        return self._compiled[key]

    def found(self, text: str, flags: str, subject: str) -> bool:
        """Whether the expression matches the subject anywhere."""
        key = (text, flags, subject)
        if key not in self._answers:
            self._answers[key] = self.compiled(text, flags).found_in(subject, self._spend)
        return self._answers[key]

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise TooCostlyError


class _Program:
    """The operations of a tree, in order. What repeats is written out as often as it must be there."""

    def __init__(self, *, with_groups: bool) -> None:
        self.ops: list[Op] = []
        self._with_groups = with_groups
        self._work = 0

    def add(self, op: Op) -> int:
        self.ops.append(op)
        return len(self.ops) - 1

    def emit(self, tree: Tree) -> None:
        self._work += 1
        # Counted apart from operations: an empty group repeated a thousand times a thousand times adds none.
        if self._work > 2 * MAX_PROGRAM or len(self.ops) > MAX_PROGRAM:
            raise PatternError("the repetitions in it make it too large", 0)
        match tree:
            case One():
                self.add(("one", tree.fits))
            case Edge():
                self.add(("edge", tree.kind))
            case Row():
                for part in tree.parts:
                    self.emit(part)
            case Choice():
                self._choice(tree.parts)
            case Repeat():
                self._repeat(tree)
            case Group():
                self._group(tree)

    def _group(self, tree: Group) -> None:
        if self._with_groups:
            self.add(("save", tree.number, True))
        self.emit(tree.part)
        if self._with_groups:
            self.add(("save", tree.number, False))

    def _fork(self) -> int:
        return self.add(("fork", 0, 0))

    def _choice(self, parts: tuple[Tree, ...]) -> None:
        jumps: list[int] = []
        for part in parts[:-1]:
            fork = self._fork()
            self.emit(part)
            jumps.append(self._fork())
            self.ops[fork] = ("fork", fork + 1, len(self.ops))
        self.emit(parts[-1])
        for jump in jumps:
            self.ops[jump] = ("fork", len(self.ops), len(self.ops))

    def _repeat(self, tree: Repeat) -> None:
        for _ in range(tree.low):
            self.emit(tree.part)
        if tree.high is None:
            fork = self._fork()
            self.emit(tree.part)
            self.add(("fork", fork, fork))
            self._aim(fork, lazy=tree.lazy)
            return
        forks: list[int] = []
        for _ in range(tree.high - tree.low):
            forks.append(self._fork())
            self.emit(tree.part)
        for fork in forks:
            self._aim(fork, lazy=tree.lazy)

    def _aim(self, fork: int, *, lazy: bool) -> None:
        """Let a fork lead into what follows it, or past all that there is so far."""
        into, past = fork + 1, len(self.ops)
        self.ops[fork] = ("fork", past, into) if lazy else ("fork", into, past)


def is_at(kind: str, text: str, index: int) -> bool:
    """Whether the place before `index` is such an edge."""
    before, after = text[index - 1 : index] if index else "", text[index : index + 1]
    match kind:
        case "start":
            return not before
        case "end":
            return not after
        case "line start":
            return before in ("", "\n")
        case "line end":
            return after in ("", "\n")
        case _:
            border = (before != "" and is_word(before)) != (after != "" and is_word(after))
            return border is (kind == "word")
