"""Reads and evaluates `spec:inputs:*:rules`: the options and the default of an input depend on the values of others.

The first rule whose condition holds decides; a rule without a condition always holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

import msgspec

from remuda.pipeline.errors import Report, printable, quote
from remuda.pipeline.rules.expressions import MAX_EXPRESSION, Expression, ExpressionError, holds, parse_expression
from remuda.pipeline.rules.regex import Patterns, TooCostlyError
from remuda.pipeline.syntax.known_keys import INPUT_RULE
from remuda.pipeline.syntax.tree import Items, Node, Opaque, Scalar, Table
from remuda.pipeline.syntax.typed_values import Fields, inside, mistyped, read_table, read_text

MAX_RULES = 50
MAX_OPTIONS = 50

# Texts and regular expressions stay as they are; references to inputs and plain literals become terms of `rules:if`.
_TERM = re.compile(
    r"\"[^\"]*\"|'[^']*'|/(?:[^/\\]|\\.)+/"
    r"|\$\[\[\s*inputs\.(?P<input>[\w-]+)\s*\]\]"
    r"|(?<![\w$.-])(?P<literal>true|false|-?\d+(?:\.\d+)?)(?![\w.])",
    re.ASCII,
)


class InputRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of an input. `inputs`: names of the inputs in its condition, in the order of its variables `$input_N`."""

    condition: Expression | None = None
    inputs: tuple[str, ...] = ()
    options: tuple[str, ...] | None = None
    default: Node | None = None
    at: Node


def read_rules(report: Report, node: Node, path: str, patterns: Patterns) -> tuple[InputRule, ...]:
    if not isinstance(node, Items) or len(node.items) > MAX_RULES:
        mistyped(report, node, path, f"a list of at most {MAX_RULES} rules")
        return ()
    return tuple(rule for item in node.items if (rule := _rule(report, item, path, patterns)))


def _rule(report: Report, node: Node, path: str, patterns: Patterns) -> InputRule | None:
    entries = read_table(report, node, path, INPUT_RULE)
    if not isinstance(node, Table):
        return None
    fields = Fields(report, entries, path)
    options = fields.read("options", read_options)
    default = entries["default"].value if "default" in entries else None
    if not {"options", "default"} & node.entries.keys():
        report.add(node, path, 'a rule must have "options" or "default"', "say what the rule changes")
        default = Opaque(line=node.line, column=node.column, file=node.file)
    if "if" not in entries:
        return InputRule(options=options, default=default, at=node)
    condition, names = _condition(report, entries["if"].value, inside(path, "if"), patterns)
    if condition is None:
        return None
    return InputRule(condition=condition, inputs=names, options=options, default=default, at=entries["if"].value)


def _condition(report: Report, node: Node, path: str, patterns: Patterns) -> tuple[Expression | None, tuple[str, ...]]:
    """Parse a condition, in which inputs become the variables `$input_0`, `$input_1` and so on."""
    text = read_text(report, node, path)
    if text is None:
        return None, ()
    if len(text) > MAX_EXPRESSION:
        report.add(node, path, f"an expression has at most {MAX_EXPRESSION} characters", "use shorter ones")
        return None, ()
    names: dict[str, int] = {}

    def replace(match: re.Match[str]) -> str:
        if match["input"]:
            return f"$input_{names.setdefault(match['input'], len(names))}"
        return f'"{match["literal"]}"' if match["literal"] else match[0]

    try:
        return parse_expression(_TERM.sub(replace, text), patterns), tuple(names)
    except ExpressionError as error:
        report.add(node, path, f"bad condition: {error}", "write it like $[[ inputs.name ]] == 'value'")
    except TooCostlyError:
        report.stop(node, path, "the regular expressions take too long to evaluate", "use simpler ones")
    return None, ()


def read_options(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    """Read the options of an input or of one of its rules, as texts; None, with a mistake reported, if invalid."""
    if not isinstance(node, Items):
        mistyped(report, node, path, f"a list of at most {MAX_OPTIONS} values")
        return None
    if len(node.items) > MAX_OPTIONS:
        report.add(node, path, f"has more than {MAX_OPTIONS} values", "use fewer")
        return None
    return tuple(item.text for item in node.items if isinstance(item, Scalar))


def is_true(report: Report, rule: InputRule, values: Mapping[str, str], patterns: Patterns) -> bool:
    """True if the condition of a rule holds for the texts of the inputs that it names, or if it has none."""
    if rule.condition is None:
        return True
    variables = {f"input_{index}": values[name] for index, name in enumerate(rule.inputs) if name in values}
    try:
        return holds(rule.condition, variables, patterns)
    except TooCostlyError:
        report.stop(rule.at, "", "the regular expressions take too long to evaluate", "use simpler ones")


def order_inputs(report: Report, rules: Mapping[str, tuple[InputRule, ...]], keys: Mapping[str, Scalar]) -> list[str]:
    """Return the names of all inputs so that each comes after those that its rules name. Reports rules that name an
    input that does not exist, and stops the compilation if rules depend on each other in a circle. `keys`: all inputs,
    with their positions."""
    graph: dict[str, list[str]] = {name: [] for name in keys}
    for name, own in rules.items():
        for rule in own:
            for other in rule.inputs:
                if other in keys:
                    graph[name].append(other)
                    continue
                path = f"spec:inputs:{name}:rules:if"
                report.add(rule.at, path, f"there is no input {quote(other)}", 'declare it under "spec:inputs"')
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle: list[str] = error.args[1][::-1]
        trail = " -> ".join(map(printable, circle[:10]))
        message = f"the rules of inputs depend on each other in a circle: {trail}"
        report.stop(keys[circle[0]], f"spec:inputs:{circle[0]}", message, "remove one of the conditions")
