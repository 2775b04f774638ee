"""Evaluates expressions in the context of a step. No I/O: `steps.engine` fills a `Context` and gets values back.

The work of one call is limited, so that a hostile definition cannot block the agent. A value that is sensitive, or
computed from a sensitive one, is returned as `Sensitive`. `operations` defines the values, `syntax` the grammar."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, NoReturn

from remuda.lib.dataclass import dataclass
from remuda.steps.language import operations, syntax
from remuda.steps.language.errors import ExpressionError
from remuda.steps.language.escaping import OPENER
from remuda.steps.language.report import did_you_mean
from remuda.steps.language.sensitive import Sensitive, conceal, is_sensitive, reveal, sensitive
from remuda.steps.language.syntax import Node
from remuda.steps.language.template import Hole, parse_template
from remuda.steps.language.values import NAME

__all__ = [
    "Context",
    "Sensitive",
    "conceal",
    "expand",
    "expand_env",
    "expand_text",
    "holds",
    "is_sensitive",
    "reveal",
    "runs_after_failure",
    "sensitive",
]

FUNCTIONS = ("str", "num", "bool")
STATUS_FUNCTIONS = ("success", "failure", "cancelled", "always")
"""Functions that are only allowed in `if`."""
_MAX_WORK = 2_000_000
"""How many nodes of expressions and parts of values one call may visit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The values that a step's expressions can refer to. Any of them may be marked sensitive."""

    env: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    vars: Mapping[str, Any] = field(default_factory=dict)
    """Job variables; `job` is the older name."""
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Finished steps of the same list: name to {"outputs": {...}}."""
    func_dir: str = ""
    """Folder of the definition; `step_dir` is the older name."""
    work_dir: str = ""
    output_file: str = ""
    export_file: str = ""
    input_file: str = ""
    """A JSON file with the step's inputs (an extension)."""
    failed: bool = False
    """True if an earlier step has failed, or the list of steps was stopped for any reason; for `if`."""
    cancelled: bool = False
    """True if the job was cancelled; for `if`."""

    def names(self) -> dict[str, Any]:
        return {
            "env": self.env,
            "inputs": self.inputs,
            "vars": self.vars,
            "job": self.vars,
            "steps": self.steps,
            "func_dir": self.func_dir,
            "step_dir": self.func_dir,
            "work_dir": self.work_dir,
            "output_file": self.output_file,
            "export_file": self.export_file,
            "input_file": self.input_file,
        }


def expand(value: Any, context: Context) -> Any:
    """Return the value with all expressions in its strings and keys evaluated. A string that consists of one expression
    is replaced by the expression's value, of any type. Raises ExpressionError if an expression is invalid or fails."""
    return operations.check_bounds(_expand(value, _Evaluation(context)))


def expand_text(text: str, context: Context) -> str | Sensitive:
    """Evaluate all expressions in a text; `Sensitive` if a value in it is. Raises ExpressionError if one fails."""
    value: str | Sensitive = _Evaluation(context).text(text)
    return value


def expand_env(env: Mapping[str, str], context: Context) -> dict[str, str | Sensitive]:
    """Evaluate expressions in names and values of environment variables. Raises ExpressionError if one is invalid."""
    evaluation = _Evaluation(context)
    expanded: dict[str, str | Sensitive] = {}
    for written, text in env.items():
        name = evaluation.key(written, expanded)
        if not NAME.fullmatch(name):
            raise ExpressionError(
                f'env: "{syntax.excerpt(name)}" is not a variable name (letters, digits and _, no digit first)'
            )
        expanded[name] = evaluation.text(text)
        if "\0" in reveal(expanded[name]):  # no program can get it, and in a sandbox it would end the variable
            raise ExpressionError(f"env: {name} contains a NUL character, which no variable can have")
    return expanded


def holds(condition: str | None, context: Context) -> bool:
    """True if a step with this `if` condition is to run now. Unless the condition calls a status function such as
    `always()`, it is also required that no earlier step has failed and the job was not cancelled."""
    succeeds = not context.failed and not context.cancelled
    if condition is None:
        return succeeds
    tree = syntax.parse_expression(condition)
    if not _calls(tree, STATUS_FUNCTIONS) and not succeeds:
        return False
    evaluation = _Evaluation(context, statuses=True)
    return operations.truthy(evaluation.plain(evaluation.of(Hole(tree, condition)))[0])


def runs_after_failure(condition: str | None) -> bool:
    """True if a step's `if` calls `failure()`, `cancelled()` or `always()`: it may run after an earlier failure."""
    return condition is not None and _calls(syntax.parse_expression(condition), ("failure", "cancelled", "always"))


def unknown_functions(tree: Node, *, statuses: bool = False) -> list[str]:
    """Return the called functions that do not exist. `statuses`: accept functions of `if`, such as `always()`."""
    functions = FUNCTIONS + STATUS_FUNCTIONS if statuses else FUNCTIONS
    calls = (node for node, _ in syntax.walk(tree) if isinstance(node, syntax.Call))
    return [call.function for call in calls if call.function not in functions]


def _calls(tree: Node, functions: Iterable[str]) -> bool:
    return any(isinstance(node, syntax.Call) and node.function in functions for node, _ in syntax.walk(tree))


def _expand(value: Any, evaluation: "_Evaluation") -> Any:
    match value:
        case str():
            parts = parse_template(value)
            if len(parts) == 1 and isinstance(parts[0], Hole):
                return evaluation.of(parts[0])
            return evaluation.text(value)
        case list() | tuple():
            return [_expand(item, evaluation) for item in value]
        case Mapping():
            expanded: dict[str, Any] = {}
            for key, item in value.items():
                expanded[evaluation.key(key, expanded)] = _expand(item, evaluation)
            return expanded
    return value


class _MissingError(ExpressionError):
    """Raised if a property or index does not exist. A left operand of `||` that raises this counts as null."""


class _Evaluation:
    """Evaluates the expressions of one value or text. Raises ExpressionError after visiting `_MAX_WORK` nodes."""

    def __init__(self, context: Context, *, statuses: bool = False) -> None:
        self._context = context
        self._names = context.names()
        self._statuses = statuses
        self._work = _MAX_WORK
        self._source = ""

    def of(self, hole: Hole) -> Any:
        self._source = syntax.excerpt(hole.source) + (f", line {hole.line}" if hole.line else "")
        return self._value(hole.tree)

    def text(self, text: str) -> Any:
        if OPENER not in text:
            return text
        return self._join([self.of(part) if isinstance(part, Hole) else part for part in parse_template(text)])

    def key(self, written: str, others: Mapping[str, Any]) -> str:
        if OPENER not in written:
            key: Any = written
        else:
            key = self.text(written)
        if isinstance(key, Sensitive):
            raise ExpressionError(
                f'the key "{syntax.excerpt(written)}" contains a sensitive value, which is allowed only in values'
            )
        if key in others and key == written:
            raise ExpressionError(f'the key "{key}" appears twice: an expression in another key gives it, too')
        if key in others:
            raise ExpressionError(
                f'the key "{syntax.excerpt(written)}" evaluates to "{key}", which another key has already'
            )
        return str(key)

    def plain(self, value: Any) -> tuple[Any, bool]:
        """Return the value without sensitive marks, and True if it or a part had one. Its size counts as work."""
        if isinstance(value, str):
            self._spend(1 + len(value) // 64)
            return value, False
        if not isinstance(value, list | dict | Sensitive):
            return value, False
        self._spend(operations.size(value, self._work))
        return (reveal(value), True) if is_sensitive(value) else (value, False)

    def _spend(self, work: int) -> None:
        self._work -= work
        if self._work <= 0:
            raise ExpressionError(f"{self._source} takes too much work; use smaller values")

    def _value(self, node: Node) -> Any:
        self._spend(1)
        match node:
            case syntax.Literal(value=value):
                return operations.number(value) if isinstance(value, float) else value
            case syntax.Template(parts=parts):
                return self._join([self._value(part) for part in parts])
            case syntax.Array(items=items):
                return [self._value(item) for item in items]
            case syntax.Object(entries=entries):
                return self._object(entries)
            case syntax.Name(name=name):
                value = self._root(name)
                return dict(value) if isinstance(value, Mapping) else value
            case syntax.Attribute():
                return self._attribute(node)
            case syntax.Index():
                return self._index(node)
            case syntax.Call(function=function, arguments=arguments):
                return self._call(function, arguments)
            case syntax.Unary(operator=operator, operand=operand):
                return self._unary(operator, self._value(operand))
            case syntax.Binary(operator="&&" | "||"):
                return self._logical(node)
            case syntax.Binary(operator=operator, left=left, right=right):
                return self._binary(operator, self._value(left), self._value(right))
        raise AssertionError(node)

    def _join(self, values: list[Any]) -> Any:
        texts: list[str] = []
        length, marked = 0, False
        for value in values:
            plain, secret = self.plain(value)
            texts.append(operations.text_of(plain))
            length += len(texts[-1])
            marked = marked or secret
            if length > operations.MAX_TEXT:
                raise ExpressionError(f"the text has more than {operations.MAX_TEXT} characters")
        text = "".join(texts)
        return Sensitive(text) if marked else text

    def _object(self, entries: tuple[tuple[Node, Node], ...]) -> Any:
        entries_by_key: dict[str, Any] = {}
        marked = False
        for key_node, value_node in entries:
            key, secret = self.plain(self._value(key_node))
            marked = marked or secret
            if not isinstance(key, str):
                self._fail("{...}", f"a key must be a string, not {_a(key)}")
            if key in entries_by_key:
                self._fail("{...}", "a key appears twice")
            entries_by_key[key] = self._value(value_node)
        return self._mark(entries_by_key, marked)

    def _mark(self, value: Any, marked: bool) -> Any:
        return Sensitive(self.plain(value)[0]) if marked else value

    def _root(self, name: str) -> Any:
        if name not in self._names:
            self._fail(name, "attribute not found" + did_you_mean(name, self._names))
        return self._names[name]

    def _subject(self, node: Node) -> tuple[Any, bool]:
        """Evaluate what is before `.` or `[`. If it is sensitive as a whole, return it without the mark, and True."""
        self._spend(1)
        value = self._root(node.name) if isinstance(node, syntax.Name) else self._value(node)
        return (value.value, True) if isinstance(value, Sensitive) else (value, False)

    def _attribute(self, node: syntax.Attribute) -> Any:
        value, marked = self._subject(node.subject)
        if not isinstance(value, Mapping):
            self._fail(f".{node.name}", f"only an object has attributes, and this is {_a(value)}")
        return self._mark(self._member(value, node.name, f".{node.name}", hints=not marked), marked)

    def _index(self, node: syntax.Index) -> Any:
        value, marked = self._subject(node.subject)
        key, secret = self.plain(self._value(node.key))
        shown = "[...]" if secret or isinstance(key, list | dict) else f"[{syntax.excerpt(operations.text_of(key))}]"
        item: Any = None
        if isinstance(value, Mapping) and isinstance(key, str):
            item = self._member(value, key, shown, hints=not marked and not secret)
        elif isinstance(value, list) and operations.kind(key) == "number":
            if isinstance(key, float) or not 0 <= key < len(value):
                self._fail(shown, "index not found", missing=True)
            item = value[key]
        elif isinstance(value, Mapping | list):
            expected = "a string" if isinstance(value, Mapping) else "a number"
            self._fail(shown, f"{_a(value)} is indexed by {expected}, not by {_a(key)}")
        else:
            self._fail(shown, f"only an array or object has items, and this is {_a(value)}")
        return self._mark(item, marked or secret)

    def _member(self, value: Mapping[str, Any], name: str, shown: str, *, hints: bool) -> Any:
        if name not in value:
            hint = did_you_mean(name, value) if hints else ""
            if "-" in name and not hint:
                hint = '; "-" is part of a name; put spaces around it to subtract'
            self._fail(shown, "attribute not found" + hint, missing=True)
        return value[name]

    def _call(self, function: str, arguments: tuple[Node, ...]) -> Any:
        if self._statuses and function in STATUS_FUNCTIONS:
            if arguments:
                self._fail(f"{function}()", "takes no argument")
            return self._status(function)
        if function not in FUNCTIONS:
            status = (
                "; it can only be used in `if`" if function in STATUS_FUNCTIONS else did_you_mean(function, FUNCTIONS)
            )
            self._fail(f"{function}()", f"function not found{status}")
        if len(arguments) != 1:
            self._fail(f"{function}()", f"takes one argument, not {len(arguments)}")
        value, marked = self.plain(self._value(arguments[0]))
        result: Any
        if function == "str":
            result = "<null>" if value is None else operations.text_of(value)
        elif function == "bool":
            result = operations.truthy(value)
        elif isinstance(value, str):
            result = self._guard("num()", lambda: operations.number_from(value))
        elif operations.kind(value) == "number":
            result = value
        else:
            self._fail("num()", f"a string is needed, not {_a(value)}")
        return Sensitive(result) if marked else result

    def _status(self, function: str) -> bool:
        ended = self._context.failed or self._context.cancelled
        match function:
            case "success":
                return not ended
            case "failure":
                return ended
            case "cancelled":
                return self._context.cancelled
        return True

    def _unary(self, operator: str, operand: Any) -> Any:
        value, marked = self.plain(operand)
        result: Any
        if operator == "!":
            result = not operations.truthy(value)
        elif operations.kind(value) != "number":
            self._fail(operator, f"a number is needed, not {_a(value)}")
        else:
            result = operations.number(-value if operator == "-" else value)
        return Sensitive(result) if marked else result

    def _binary(self, operator: str, left: Any, right: Any) -> Any:
        first, left_marked = self.plain(left)
        second, right_marked = self.plain(right)
        marked = left_marked or right_marked
        result: Any
        if operator in ("==", "!=", "<", "<=", ">", ">="):
            result = operations.compare(operator, first, second)
        elif operator == "+":
            result = self._guard(operator, lambda: operations.add(first, second))
        else:
            result = self._guard(operator, lambda: operations.arithmetic(operator, first, second))
        return Sensitive(result) if marked else result

    def _logical(self, node: syntax.Binary, *, or_missing: bool = False) -> Any:
        """Evaluate `&&` or `||`, whose result is one of the operands. If the left one is sensitive, the result is too,
        because the choice reveals something about it. `or_missing`: a missing property on the right counts as null."""
        either = node.operator == "||"
        left = self._or_missing(node.left) if either else self._value(node.left)
        marked = isinstance(left, Sensitive)
        if operations.truthy(left.value if isinstance(left, Sensitive) else left) == either:
            return left
        return self._mark(self._or_missing(node.right) if or_missing else self._value(node.right), marked)

    def _or_missing(self, node: Node) -> Any:
        """Evaluate an operand of `||`. Returns None if the operand is a property or index that does not exist."""
        if isinstance(node, syntax.Binary) and node.operator == "||":
            return self._logical(node, or_missing=True)
        try:
            return self._value(node)
        except _MissingError:
            if isinstance(node, syntax.Attribute | syntax.Index):
                return None
            raise

    def _guard(self, shown: str, work: Any) -> Any:
        try:
            return work()
        except ExpressionError as error:
            self._fail(shown, str(error))

    def _fail(self, shown: str, problem: str, *, missing: bool = False) -> NoReturn:
        kind = _MissingError if missing else ExpressionError
        raise kind(f'evaluating expression failed at "{shown}": {problem} (in {self._source})')


def _a(value: Any) -> str:
    kind = operations.kind(value)
    return kind if kind == "null" else f"an {kind}" if kind[0] in "ao" else f"a {kind}"
