"""Parses a definition file (YAML or JSON) with its two documents, spec and definition, into a `Step`. No I/O.

Checks all that can be checked without running the step; all mistakes are reported together, each with file and line.
Both sets of key names that GitLab's step runner has used (such as `step` and `func`) are accepted."""

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from remuda.steps.errors import DefinitionError
from remuda.steps.language.calls import read_calls
from remuda.steps.language.checking import mismatch
from remuda.steps.language.document import DocumentError, Node, read_documents
from remuda.steps.language.fields import Fields
from remuda.steps.language.report import Report
from remuda.steps.language.values import (
    MISSING,
    Call,
    Definition,
    EnvironmentDefinition,
    Exec,
    Parameter,
    Spec,
    Step,
    ValueType,
)

VERSION = 1
"""Version of Remuda's extensions."""

_PACKAGE_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){0,2}(?:[-+][0-9A-Za-z.+-]+)?")
_LARGEST_CACHED = 64 * 1024
_DEFINITION_KEYS = ("exec", "run", "outputs", "delegate", "env", "type")
_DEFINITION_EXTENSIONS = ("finally", "environment")


def read_step(
    text: str, *, file: str = "func.yml", lenient: bool = False, bare: bool = False, job: bool = False
) -> Step:
    """Parse the text of a definition file. Raises DefinitionError with all mistakes. `file`: its name for messages.
    `lenient`: ignore unknown keys. `bare`: accept also only the definition or its list of steps, as in a job's payload.
    `job`: accept the key `origin`, which says who added a step. Results are cached, because steps repeat."""
    read = _read_cached if len(text) <= _LARGEST_CACHED else _read
    return read(text, file, lenient, bare, job)


def _read(text: str, file: str, lenient: bool, bare: bool, job: bool) -> Step:
    report = Report(file)
    try:
        documents = read_documents(text)
    except DocumentError as error:
        raise DefinitionError(f"{file}:{error.line}: {error}") from None
    fields = Fields(report, lenient=lenient, is_job=job)
    if bare and (first := _bare(documents)) is not None:
        documents = [Node(line=1, value=None), first]
    if len(documents) < 2:
        raise DefinitionError(
            f'{file}:1: two documents with a line "---" between them are needed: the spec, then the definition'
        )
    spec = _read_spec(fields, documents[0])
    definition = _read_definition(fields, documents[1], spec)
    report.finish()
    return Step(spec=spec, definition=definition)


_read_cached = lru_cache(maxsize=128)(_read)


def _bare(documents: list[Node]) -> Node | None:
    if not documents or (len(documents) > 1 and documents[0].value is not None):
        return None
    node = documents[-1]
    if isinstance(node.value, list):
        return Node(line=node.line, value={"run": node})
    if isinstance(node.value, dict) and "spec" not in node.value:
        return node
    return None


def _read_spec(fields: Fields, document: Node) -> Spec:
    if document.value is None:
        return Spec()
    root = fields.filter_keys(fields.read_mapping(document, "spec document") or {}, ("spec",), (), "spec document")
    if "spec" not in root or root["spec"].value is None:
        return Spec()
    entries = fields.read_mapping(root["spec"], "spec") or {}
    version = _read_version(fields, entries.get("remuda"))
    fields.extended = version is not None
    entries = fields.filter_keys(entries, ("inputs", "outputs", "remuda"), ("version",), "spec")
    outputs = entries.get("outputs")
    delegates = outputs is not None and outputs.value == "delegate"
    if outputs is not None and isinstance(outputs.value, str) and not delegates:
        fields.refuse(
            outputs.line, f'spec.outputs: a mapping, or the word delegate is needed, not "{outputs.value[:40]}"'
        )
        outputs = None
    return Spec(
        inputs=_read_parameters(fields, entries.get("inputs"), "spec.inputs"),
        outputs={} if delegates else _read_parameters(fields, outputs, "spec.outputs"),
        delegates_outputs=delegates,
        remuda=version,
        version=_read_package_version(fields, entries.get("version")),
    )


def _read_version(fields: Fields, node: Node | None) -> int | None:
    if node is None or node.value is None:
        return None
    if node.value != VERSION or isinstance(node.value, bool):
        fields.refuse(
            node.line, f"spec.remuda: this agent knows version {VERSION}, not {node.written[:40]}; use a newer agent"
        )
    return VERSION


def _read_package_version(fields: Fields, node: Node | None) -> str | None:
    if node is None or node.value is None:
        return None
    if not _PACKAGE_VERSION.fullmatch(node.written):
        fields.refuse(node.line, f'spec.version: a version like 1.2.3 is needed, not "{node.written[:40]}"')
    return node.written


def _read_parameters(fields: Fields, node: Node | None, place: str) -> dict[str, Parameter]:
    return {
        name: _read_parameter(fields, entry, f"{place}.{name}")
        for name, entry in fields.read_named(node, place).items()
    }


def _read_parameter(fields: Fields, node: Node, place: str) -> Parameter:
    entries = fields.read_mapping(node, place) or {}
    entries = fields.filter_keys(entries, ("type", "default", "sensitive", "description"), (), place)
    if "type" not in entries:
        if isinstance(node.value, dict):
            fields.refuse(node.line, f'{place}: "type" is missing; one of {", ".join(ValueType)} is needed')
        return Parameter(type=ValueType.STRING)
    value_type = fields.choice(entries["type"], tuple(ValueType), f"{place}.type")
    default: Any = MISSING
    if "default" in entries and entries["default"].value is not None:
        default = entries["default"].plain()
        if value_type == entries["type"].value and (mistake := mismatch(value_type, default)):
            fields.refuse(entries["default"].line, f"{place}.default: {mistake}")
    return Parameter(
        type=value_type,
        default=default,
        sensitive=fields.boolean(entries.get("sensitive"), f"{place}.sensitive"),
        description=fields.text(entries.get("description"), f"{place}.description"),
    )


def _read_definition(fields: Fields, document: Node, spec: Spec) -> Definition:
    entries = fields.read_mapping(document, "definition") or {}
    entries = fields.filter_keys(entries, _DEFINITION_KEYS, _DEFINITION_EXTENSIONS, "definition")
    kinds = [key for key in ("exec", "run", "environment") if key in entries]
    if len(kinds) != 1:
        choices = 'exactly one of "exec" and "run"'
        problem = f", not {' and '.join(kinds)}" if kinds else ""
        if isinstance(document.value, dict):
            fields.refuse(document.line, f"definition: {choices} is needed{problem}")
        return Definition()
    kind = kinds[0]
    _read_old_type(fields, entries.get("type"), kind)
    for key in ("outputs", "delegate", "finally"):
        if key in entries and kind != "run":
            fields.refuse(entries[key].line, f'definition: "{key}" belongs to "run", not to "{kind}"')
    env = fields.env(entries.get("env"), "env")
    if kind == "exec":
        return Definition(exec=_read_exec(fields, entries["exec"], "exec"), env=env)
    if kind == "environment":
        return Definition(environment=_read_environment(fields, entries["environment"]), env=env)
    calls = read_calls(fields, entries["run"], "run")
    delegate = _read_delegate(fields, entries, calls, spec)
    if "finally" in entries:
        calls += tuple(_add_always(call) for call in read_calls(fields, entries["finally"], "finally"))
    outputs = fields.read_named(entries.get("outputs"), "outputs")
    for name, value in outputs.items():
        fields.check_expressions(value, f"outputs.{name}")
        if spec.delegates_outputs:
            fields.refuse(value.line, f'outputs.{name}: the spec says "outputs: delegate", so nothing would read it')
    plain = {name: value.plain() for name, value in outputs.items()}
    return Definition(run=calls, outputs=plain, delegate=delegate, env=env)


def _read_old_type(fields: Fields, node: Node | None, kind: str) -> None:
    """Report the old key `type` (before version 0.2) if it contradicts the definition's `kind`, such as `exec`."""
    if node is not None and (kind, node.value) not in (("exec", "exec"), ("run", "steps"), ("run", "run")):
        fields.refuse(node.line, f'definition.type: "{node.written[:40]}" does not fit "{kind}"; leave it out')


def _read_exec(fields: Fields, node: Node, place: str) -> Exec:
    entries = fields.filter_keys(fields.read_mapping(node, place) or {}, ("command", "work_dir"), (), place)
    command = entries.get("command")
    if command is None or not isinstance(command.value, list) or not command.value:
        if isinstance(node.value, dict):
            line = command.line if command else node.line
            fields.refuse(line, f'{place}.command: a list like [echo, "hello"] is needed, with at least one item')
        return Exec(command=("",))
    words = tuple(fields.scalar(word, f"{place}.command[{index}]") for index, word in enumerate(command.value))
    work_dir = entries.get("work_dir")
    if work_dir is not None:
        fields.check_expressions(work_dir, f"{place}.work_dir")
    return Exec(command=words, work_dir=fields.text(work_dir, f"{place}.work_dir") or None)


def _read_environment(fields: Fields, node: Node) -> EnvironmentDefinition:
    entries = fields.filter_keys(fields.read_mapping(node, "environment") or {}, ("open", "close"), (), "environment")
    if "open" not in entries:
        if isinstance(node.value, dict):
            fields.refuse(
                node.line, 'environment: "open" is missing; write {command: [...]}, which creates the environment'
            )
        return EnvironmentDefinition(open=Exec(command=("",)))
    return EnvironmentDefinition(
        open=_read_exec(fields, entries["open"], "environment.open"),
        close=_read_exec(fields, entries["close"], "environment.close") if "close" in entries else None,
    )


def _read_delegate(fields: Fields, entries: dict[str, Node], calls: tuple[Call, ...], spec: Spec) -> str | None:
    """Return the key `delegate`: the name of the step in `run` whose outputs become those of this step. Reports a
    mistake if `calls` has no such step. It has no effect without `outputs: delegate`, as in GitLab's step runner."""
    node = entries.get("delegate")
    if node is None or node.value is None:
        if spec.delegates_outputs:
            line = entries["run"].line
            fields.refuse(line, 'definition: the spec says "outputs: delegate"; "delegate" must name a step of "run"')
        return None
    name = fields.text(node, "delegate")
    if name and calls and all(call.name != name for call in calls):
        fields.refuse(node.line, f'delegate: there is no step "{name[:100]}" in "run"')
    return name


def _add_always(call: Call) -> Call:
    """Return a step of the list `finally` with `always()` added to its condition, so that it also runs after a
    failure."""
    condition = f"always() && ({call.condition})" if call.condition else "always()"
    return replace(call, condition=condition)
