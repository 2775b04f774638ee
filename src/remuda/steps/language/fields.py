"""Parses the common parts of a definition: mappings, names, environment variables, expressions.

A method that finds a mistake adds it to the report and returns a valid default, so that one pass finds all mistakes.
With `lenient`, unknown keys are ignored, as GitLab's step runner does; otherwise they are mistakes."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from remuda.steps.language.document import Node
from remuda.steps.language.errors import ExpressionError
from remuda.steps.language.escaping import OPENER
from remuda.steps.language.evaluate import unknown_functions
from remuda.steps.language.report import Report, nearest
from remuda.steps.language.template import Hole, parse_template
from remuda.steps.language.values import NAME

T = TypeVar("T", bound=str)

GATE = "spec: {remuda: 1}"
_RENAMED = {"steps": "run", "when": "if", "allow_failure": "continue_on_error"}


class Fields:
    def __init__(self, report: Report, *, lenient: bool, is_job: bool = False) -> None:
        self.is_job = is_job
        """True for the request of a job, False for the file of a package."""
        self.extended = False
        """True if the spec allows Remuda's extensions (`remuda: 1`)."""
        self._report = report
        self._lenient = lenient

    @property
    def file(self) -> str:
        return self._report.file

    def refuse(self, line: int, message: str) -> None:
        self._report.add(line, message)

    def read_mapping(self, node: Node, place: str) -> dict[str, Node] | None:
        """Return a mapping's entries. If the node is not one, reports a mistake at `place` and returns None."""
        if isinstance(node.value, dict):
            return node.value
        self.refuse(node.line, f"{place}: a mapping of names to values is needed")
        return None

    def filter_keys(
        self, entries: Mapping[str, Node], keys: Sequence[str], extensions: Sequence[str], place: str
    ) -> dict[str, Node]:
        allowed = (*keys, *extensions) if self.extended else tuple(keys)
        allowed_entries: dict[str, Node] = {}
        for key, node in entries.items():
            if key in allowed:
                allowed_entries[key] = node
            elif not self._lenient:
                self.refuse(node.line, f"{place}: {self._unknown(key, allowed, extensions)}")
        return allowed_entries

    def _unknown(self, key: str, allowed: Sequence[str], extensions: Sequence[str]) -> str:
        if key in extensions:
            return f'"{key}" is an extension and needs "{GATE}" in the first document'
        if _RENAMED.get(key) in (*allowed, *extensions):
            return f'unknown key "{key}"; did you mean "{_RENAMED[key]}"?'
        return f'unknown key "{key}"{nearest(key, allowed)}'

    def name(self, node: Node, place: str) -> str:
        if isinstance(node.value, str) and NAME.fullmatch(node.value):
            return node.value
        shown = f'"{node.written[:100]}"' if node.value is not None else "nothing"
        self.refuse(node.line, f"{place}: a name of letters, digits and _ is needed, not {shown}")
        return ""

    def read_named(self, node: Node | None, place: str, *, expressions: bool = False) -> dict[str, Node]:
        """Return a mapping's entries; empty if the node is missing. Reports each key that is not a name of letters,
        digits and _. `expressions`: a key may also contain expressions. `place`: of the node, for messages."""
        if node is None or node.value is None:
            return {}
        entries = self.read_mapping(node, place) or {}
        for key, value in entries.items():
            if expressions and OPENER in key:
                self._check_text(key, value.line, place)
            elif not NAME.fullmatch(key):
                self.refuse(value.line, f'{place}: "{key[:100]}" is not a name (letters, digits and _, no digit first)')
        return entries

    def env(self, node: Node | None, place: str) -> dict[str, str]:
        """Parse environment variables. Values are taken as written in the file, null as an empty string."""
        env: dict[str, str] = {}
        for key, value in self.read_named(node, place, expressions=True).items():
            env[key] = self.scalar(value, f"{place}.{key}")
        return env

    def scalar(self, node: Node, place: str) -> str:
        """Return a scalar as written in the file, null as empty. Reports a list, mapping or invalid expression."""
        if isinstance(node.value, dict | list):
            self.refuse(node.line, f"{place}: a string is needed; put the value in quotes")
            return ""
        if node.value is None:
            return ""
        self._check_text(node.written, node.line, place)
        return node.written

    def text(self, node: Node | None, place: str) -> str:
        if node is None or node.value is None:
            return ""
        if not isinstance(node.value, str):
            self.refuse(node.line, f"{place}: a string is needed; put the value in quotes")
            return ""
        return node.value

    def boolean(self, node: Node | None, place: str) -> bool:
        if node is None or isinstance(node.value, bool):
            return node is not None and node.value is True
        self.refuse(node.line, f'{place}: true or false is needed, not "{node.written[:40]}"')
        return False

    def whole(self, node: Node, place: str, *, largest: int) -> int:
        """Parse an integer from 0 to `largest`. If it is invalid, reports a mistake at `place` and returns 0."""
        if isinstance(node.value, int) and not isinstance(node.value, bool) and 0 <= node.value <= largest:
            return node.value
        self.refuse(node.line, f"{place}: a whole number from 0 to {largest} is needed")
        return 0

    def choice(self, node: Node | None, choices: Sequence[T], place: str) -> T:
        """Return the one of `choices` in the node; if it is missing or (a reported mistake) invalid, the first."""
        if node is None:
            return choices[0]
        for choice in choices:
            if node.value == choice:
                return choice
        self.refuse(node.line, f'{place}: one of {", ".join(choices)} is needed, not "{node.written[:40]}"')
        return choices[0]

    def check_expressions(self, node: Node, place: str) -> None:
        """Report each invalid expression in a value, also in the keys of its mappings. `place`: for messages."""
        if isinstance(node.value, str):
            self._check_text(node.value, node.line, place)
        elif isinstance(node.value, list):
            for index, item in enumerate(node.value):
                self.check_expressions(item, f"{place}[{index}]")
        elif isinstance(node.value, dict):
            for key, value in node.value.items():
                self._check_text(key, value.line, place)
                self.check_expressions(value, f"{place}.{key}")

    def _check_text(self, text: str, line: int, place: str) -> None:
        if OPENER not in text:
            return
        try:
            for part in parse_template(text):
                if isinstance(part, Hole) and (unknown := unknown_functions(part.tree)):
                    self.refuse(line, f'{place}: there is no function "{unknown[0]}" here; known: str, num, bool')
        except ExpressionError as error:
            self.refuse(line, f"{place}: {error}")
