"""Reads the header of a file (`spec`), and determines the value of each input: the given one or its default.

A text from the user who starts a pipeline is parsed as the number, boolean or list that the input declares."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from remuda.pipeline.errors import Placed, Report, printable, quote
from remuda.pipeline.include.component_context import FIELDS
from remuda.pipeline.include.input_rules import InputRule, is_true, order_inputs, read_options, read_rules
from remuda.pipeline.rules.regex import PatternError, Patterns, TooCostlyError
from remuda.pipeline.syntax.known_keys import HEADER, INPUT, INPUT_TYPES, SPEC, Keys, nearest
from remuda.pipeline.syntax.tree import Entry, Items, Node, Opaque, Scalar, Table, items_of, node_of
from remuda.pipeline.syntax.typed_values import (
    Fields,
    inside,
    is_null,
    mistyped,
    read_choices,
    read_table,
    read_text,
)

MAX_DESCRIPTION = 256

_KINDS = {"string": ("text",), "number": ("number",), "boolean": ("true", "false")}


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of an input. `rules` can replace `default` and `options`."""

    type: str
    default: Node | None
    options: tuple[str, ...] | None
    regex: str | None
    rules: tuple[InputRule, ...] = ()
    description: str = ""
    key: Scalar


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a file before `---`: `spec`."""

    inputs: Mapping[str, Entry] = {}
    """The declarations of the inputs, not checked yet."""
    component: tuple[str, ...] = ()
    """The fields that the file, as a component, may use."""
    include: Node | None = None
    """The value of `spec:include`: files whose inputs are added."""


def read_header(report: Report, header: Table) -> Header:
    top = read_table(report, header, "", HEADER)
    fields = Fields(report, read_table(report, top["spec"].value, "spec", SPEC) if "spec" in top else {}, "spec")
    fields.read("description", _check_length)
    return Header(
        inputs=fields.read("inputs", read_input_names) or {},
        component=fields.read("component", read_choices, FIELDS) or (),
        include=fields.read("include", lambda _report, node, _path: node),
    )


def _check_length(report: Report, node: Node, path: str) -> None:
    text = read_text(report, node, path)
    if text is not None and len(text) > MAX_DESCRIPTION:
        report.add(node, path, f"has more than {MAX_DESCRIPTION} characters", "shorten it")


def read_input_names(report: Report, node: Node, path: str) -> Mapping[str, Entry] | None:
    """Return the declarations of inputs by name, unread; None, with a mistake reported, if they are not a map."""
    if isinstance(node, Table):
        return node.entries
    mistyped(report, node, path, "a map of names")
    return None


def read_inputs(report: Report, entries: Mapping[str, Entry], patterns: Patterns) -> dict[str, Input]:
    return {
        name: read_declaration(report, entry, f"spec:inputs:{name}", patterns, INPUT) for name, entry in entries.items()
    }


def read_declaration(report: Report, entry: Entry, path: str, patterns: Patterns, keys: Keys) -> Input:
    """Read the declaration of an input of a file or of a job, which may have these keys."""
    entries = {} if is_null(entry.value) else read_table(report, entry.value, path, keys)
    fields = Fields(report, entries, path)
    declared = Input(
        type=fields.choice("type", INPUT_TYPES) or "string",
        default=entries["default"].value if "default" in entries else None,
        options=fields.read("options", read_options),
        regex=fields.read("regex", _regex, patterns),
        rules=fields.read("rules", read_rules, patterns) or (),
        description=fields.read("description", _description) or "",
        key=entry.key,
    )
    for key in ("default", "options"):
        if key in fields and "rules" in fields:
            fields.refuse_key(key, f'"{key}" and "rules" do not go together', "move it into the rules")
    if "options" in fields and declared.type == "boolean":
        fields.refuse_key("options", "an input of the type boolean has no options", "remove them")
    if "regex" in fields and declared.type != "string":
        fields.refuse_key("regex", "only an input of the type string has a regex", "remove it")
    if declared.default is not None:
        check_value(report, declared, declared.default, f"{path}:default", patterns)
    for rule in declared.rules:
        if rule.default is not None:
            by_rule = msgspec.structs.replace(declared, options=rule.options)
            check_value(report, by_rule, rule.default, f"{path}:rules:default", patterns)
    return declared


def _regex(report: Report, node: Node, path: str, patterns: Patterns) -> str | None:
    text = read_text(report, node, path) or ""
    try:
        patterns.compile(text)
    except PatternError as error:
        message = f"the regular expression is invalid: {error} (character {error.offset + 1})"
        report.add(node, path, message, "correct it")
        return None
    return text


def _description(_report: Report, node: Node, _path: str) -> str:
    return node.text if isinstance(node, Scalar) else ""


def check_value(report: Report, declared: Input, node: Node, path: str, patterns: Patterns) -> bool:
    """True if the value has the declared type and fits options and pattern; otherwise reports a mistake."""
    if isinstance(node, Opaque):
        return False
    kinds = _KINDS.get(declared.type)
    if not (isinstance(node, Scalar) and node.kind in kinds if kinds else isinstance(node, Items)):
        mistyped(report, node, path, f"of the type {declared.type}")
        return False
    if declared.options is not None and not _are_options(report, declared.options, node, path):
        return False
    if not isinstance(node, Scalar):
        return True
    try:
        if declared.regex is not None and not patterns.is_match(declared.regex, "", node.text):
            report.add(node, path, f"{quote(node.text)} does not match {quote(declared.regex)}", "correct the value")
            return False
    except TooCostlyError:
        report.stop(node, path, "the regular expressions take too long to evaluate", "use simpler ones")
    return True


def _are_options(report: Report, options: tuple[str, ...], node: Node, path: str) -> bool:
    """True if the value, or each value of a list, is one of the options; otherwise reports mistakes."""
    suggestion = f"use one of: {', '.join(map(printable, options))}"
    others = [item for item in items_of(node) if not isinstance(item, Scalar) or item.text not in options]
    for item in others:
        shown = quote(item.text) if isinstance(item, Scalar) else "a list or map"
        report.add(item, path, f"{shown} is none of the options", suggestion)
    return not others


def take_inputs(
    report: Report,
    declared: Mapping[str, Input],
    inputs: Mapping[str, Entry],
    *,
    at: Placed,
    path: str,
    patterns: Patterns,
    is_first: bool,
) -> dict[str, Node]:
    """Return the given or default value of every input. Reports unknown, invalid and missing ones, the latter at `at`,
    the include. `is_first`: the inputs come from the request that starts the pipeline, not from an `include`, so texts
    are parsed as the declared type, and missing ones are reported where they are declared."""
    values: dict[str, Node] = {}
    for name, entry in inputs.items():
        if name not in declared:
            suggestion = nearest(name, declared) or "remove it"
            report.add(entry.key, inside(path, name), f"the file has no input {quote(name)}", suggestion)
    rules = {name: declaration.rules for name, declaration in declared.items() if declaration.rules}
    names = order_inputs(report, rules, {name: each.key for name, each in declared.items()}) if rules else declared
    for name in names:
        declaration, is_optional = _apply_rules(report, declared[name], values, patterns)
        if name in inputs:
            node = read_as(declaration.type, inputs[name].value) if is_first else inputs[name].value
            fits = check_value(report, declaration, node, inside(path, name), patterns)
            values[name] = node if fits else Opaque(line=node.line, column=node.column, file=node.file)
        elif declaration.default is not None:
            values[name] = declaration.default
        elif is_optional:
            values[name] = Scalar(text="", kind="text", line=at.line, column=at.column, file=at.file)
        else:
            message = f"the input {quote(name)} has no default and must be given"
            if is_first:
                report.add(
                    declaration.key, path, message, "give it a default, or start the pipeline with a value for it"
                )
            else:
                report.add(at, path, message, "give it a value")
            values[name] = Opaque(line=at.line, column=at.column, file=at.file)
    return values


def _apply_rules(
    report: Report, declaration: Input, values: Mapping[str, Node], patterns: Patterns
) -> tuple[Input, bool]:
    """Return the declaration with the options and the default of the first rule that applies, and whether the input
    may be left out although it has no default: if it has rules and none applies. `values`: those of other inputs."""
    texts: dict[str, str] = {}
    for rule in declaration.rules:
        # A list equals no text.
        texts |= {name: node.text for name in rule.inputs if isinstance(node := values.get(name), Scalar)}
        if is_true(report, rule, texts, patterns):
            return msgspec.structs.replace(declaration, options=rule.options, default=rule.default), False
    return declaration, bool(declaration.rules)


def read_as(kind: str, node: Node) -> Node:
    """Parse the node's text as JSON (number, boolean or list). Returns the node unchanged if the input's type `kind` is
    `string`, or the text is not JSON."""
    if kind == "string" or not isinstance(node, Scalar) or node.kind != "text":
        return node
    try:
        return node_of(msgspec.json.decode(node.text), node)
    except (msgspec.DecodeError, RecursionError):
        return node
