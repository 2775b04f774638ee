"""Parses the entries of a list of steps (`run:`, `parallel:`) into `Call` values; used by `reading`.

Both sets of key names that GitLab has used (such as `step` and `func`) are accepted. Some keys are Remuda's extensions:
without `spec: {remuda: 1}` they are refused with a message, because another step runner would ignore them silently."""

import re
from collections.abc import Mapping
from typing import Any

from remuda.steps.errors import DefinitionError
from remuda.steps.language.document import Node
from remuda.steps.language.errors import ExpressionError
from remuda.steps.language.escaping import CLOSER, OPENER
from remuda.steps.language.evaluate import unknown_functions
from remuda.steps.language.fields import Fields
from remuda.steps.language.references import LONG_FORMS, parse_reference
from remuda.steps.language.syntax import parse_expression
from remuda.steps.language.template import Hole, parse_template
from remuda.steps.language.values import Call, Place, Reference, ReferenceKind, Retry

EXTENSIONS = ("if", "retry", "timeout", "continue_on_error", "run", "parallel")
ORIGINS = ("user", "compiled")
"""Values of the key `origin` in the request of a job. Entries of packages always have `user`."""
MAX_TRIES = 100
MAX_LISTS = 20
"""How deep lists may be nested."""
_KEYS = ("name", "step", "func", "script", "inputs", "env")
_SCRIPT = Reference(kind=ReferenceKind.BUILTIN, text="builtin://script", path="script")
_ACTION = (
    '"action" was removed from GitLab\'s step runner; call the action runner as a step: '
    '"step: {git: {url: gitlab.com/components/action-runner, rev: main}}" with the inputs "action" and "inputs"'
)
_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6}(?:\.\d{1,3})?)s)?", re.ASCII)
_LONGEST_SECONDS = 366 * 86_400


def read_calls(fields: Fields, node: Node, place: str, *, depth: int = 0) -> tuple[Call, ...]:
    """Parse a non-empty list of steps, without invalid entries, which are reported to `fields`. `place`: for messages.
    `depth`: how many lists of steps are around it. If steps have the same name, expressions refer to the latest."""
    if not isinstance(node.value, list) or not node.value:
        fields.refuse(node.line, f"{place}: a list of at least one step is needed")
        return ()
    if depth > MAX_LISTS:
        fields.refuse(node.line, f"{place}: more than {MAX_LISTS} levels of nested lists of steps")
        return ()
    calls = [_read_call(fields, entry, f"{place}[{index}]", depth) for index, entry in enumerate(node.value)]
    return tuple(call for call in calls if call is not None)


def _read_call(fields: Fields, node: Node, place: str, depth: int) -> Call | None:
    entry = fields.read_mapping(node, place)
    if entry is None:
        return None
    name = _read_name(fields, node, entry, place)
    place = f"{place} ({name})" if name else place
    if "action" in entry:
        fields.refuse(entry["action"].line, f"{place}: {_ACTION}")
        entry = {key: value for key, value in entry.items() if key != "action"}
        entry.setdefault("step", Node(line=node.line, value="./", written="./"))
    entry = fields.filter_keys(entry, _KEYS, (*EXTENSIONS, "origin") if fields.is_job else EXTENSIONS, place)
    timeout = entry.get("timeout")
    common: dict[str, Any] = {
        "name": name,
        "place": Place(file=fields.file, line=node.line),
        "condition": read_condition(fields, entry.get("if"), f"{place}.if"),
        "timeout_seconds": read_seconds(fields, timeout, f"{place}.timeout") if timeout else None,
        "continue_on_error": fields.boolean(entry.get("continue_on_error"), f"{place}.continue_on_error"),
        "origin": fields.choice(entry.get("origin"), ORIGINS, f"{place}.origin"),
        "env": fields.env(entry.get("env"), f"{place}.env"),
    }
    if "parallel" in entry:
        if extra := [key for key in ("step", "func", "script", "inputs", "run", "retry") if key in entry]:
            fields.refuse(entry[extra[0]].line, f'{place}: "{extra[0]}" and "parallel" exclude each other')
        return Call(parallel=read_calls(fields, entry["parallel"], f"{place}.parallel", depth=depth + 1), **common)
    reference, inputs = _read_work(fields, node, entry, place)
    inner = read_calls(fields, entry["run"], f"{place}.run", depth=depth + 1) if "run" in entry else ()
    if reference is None:
        return None
    retry = _read_retry(fields, entry.get("retry"), f"{place}.retry")
    return Call(reference=reference, inputs=inputs, inner=inner, retry=retry, **common)


def _read_name(fields: Fields, node: Node, entry: Mapping[str, Node], place: str) -> str:
    if "name" not in entry:
        fields.refuse(node.line, f'{place}: "name" is missing; every step needs one, of letters, digits and _')
        return ""
    return fields.name(entry["name"], f"{place}.name")


def _read_work(
    fields: Fields, node: Node, entry: Mapping[str, Node], place: str
) -> tuple[Reference | None, Mapping[str, Any]]:
    """Return the step (from `step`, `func` or `script`; None if invalid) that an entry runs, and the inputs for it."""
    keys = [key for key in ("step", "func", "script") if key in entry]
    if len(keys) != 1:
        problem = f", not {' and '.join(keys)}" if keys else ""
        fields.refuse(node.line, f'{place}: exactly one of "step", "func" and "script" is needed{problem}')
        return None, {}
    work = entry[keys[0]]
    if keys[0] == "script":
        for key in ("inputs", "run"):
            if key in entry:
                fields.refuse(entry[key].line, f'{place}: "{key}" belongs to "step", not to "script"')
        if not isinstance(work.value, str) or not work.value:
            fields.refuse(work.line, f"{place}.script: a string is needed, and not an empty one")
        fields.check_expressions(work, f"{place}.script")
        return _SCRIPT, {"script": work.value}
    inputs = fields.read_named(entry.get("inputs"), f"{place}.inputs", expressions=True)
    for key, value in inputs.items():
        fields.check_expressions(value, f"{place}.inputs.{key}")
    return read_reference(fields, work, f"{place}.{keys[0]}"), {key: value.plain() for key, value in inputs.items()}


def read_reference(fields: Fields, node: Node, place: str) -> Reference | None:
    """Parse a reference: a string, or a mapping with `git` or `oci`. If invalid, reports a mistake and returns None."""
    written: Any = node.value
    if isinstance(written, dict):
        written = fields.filter_keys(written, tuple(LONG_FORMS), (), place)
        for kind, form in written.items():
            entries = fields.read_mapping(form, f"{place}.{kind}") or {}
            needed, allowed = LONG_FORMS[kind]
            entries = fields.filter_keys(entries, (*needed, *allowed), (), f"{place}.{kind}")
            written = {kind: {key: value.written for key, value in entries.items() if value.value is not None}}
            for key, value in entries.items():
                if isinstance(value.value, dict | list):
                    fields.refuse(value.line, f"{place}.{kind}.{key}: a string is needed")
                    return None
    elif not isinstance(written, str):
        fields.refuse(node.line, f'{place}: a string like ./folder, or a mapping with "git" or "oci" is needed')
        return None
    fields.check_expressions(node, place)
    try:
        return parse_reference(written, place)
    except DefinitionError as error:
        fields.refuse(node.line, str(error))
        return None


def read_condition(fields: Fields, node: Node | None, place: str) -> str | None:
    """Return the expression of the key `if` without `${{` and `}}`; None if it is missing or neither a text nor a
    boolean. Reports mistakes to `fields`. `place`: where the key is in the file, for messages."""
    if node is None:
        return None
    if not isinstance(node.value, str | bool) or node.value == "":
        fields.refuse(node.line, f"{place}: an expression is needed, like success() or inputs.deploy")
        return None
    text = node.written if isinstance(node.value, str) else str(node.value).lower()
    try:
        if text.strip().startswith(OPENER) and text.strip().endswith(CLOSER):
            parts = parse_template(text.strip())
            if len(parts) == 1 and isinstance(parts[0], Hole):
                text = text.strip()[len(OPENER) : -len(CLOSER)].strip()
        if unknown := unknown_functions(parse_expression(text), statuses=True):
            fields.refuse(node.line, f'{place}: there is no function "{unknown[0]}"')
    except ExpressionError as error:
        fields.refuse(node.line, f"{place}: {error}")
    return text


def read_seconds(fields: Fields, node: Node, place: str) -> float | None:
    """Parse seconds, or a duration like 90s, 5m or 1h30m. If invalid, reports a mistake and returns None."""
    seconds = 0.0
    if isinstance(node.value, str) and node.value and (match := _DURATION.fullmatch(node.value.replace(" ", ""))):
        hours, minutes, rest = (float(part or 0) for part in match.groups())
        seconds = hours * 3600 + minutes * 60 + rest
    elif isinstance(node.value, int | float) and not isinstance(node.value, bool):
        seconds = float(node.value)
    if 0 < seconds <= _LONGEST_SECONDS:
        return seconds
    fields.refuse(node.line, f"{place}: a number of seconds above 0, or a string like 90s, 5m or 1h30m is needed")
    return None


def _read_retry(fields: Fields, node: Node | None, place: str) -> Retry | None:
    if node is None:
        return None
    if not isinstance(node.value, dict):
        return Retry(times=fields.whole(node, place, largest=MAX_TRIES))
    entries = fields.filter_keys(node.value, ("times", "delay"), (), place)
    if "times" not in entries:
        fields.refuse(node.line, f'{place}: "times" is missing')
        return None
    times = fields.whole(entries["times"], f"{place}.times", largest=MAX_TRIES)
    delay = entries.get("delay")
    if delay is None or (delay.value == 0 and delay.value is not False):
        return Retry(times=times)
    return Retry(times=times, delay_seconds=read_seconds(fields, delay, f"{place}.delay") or 0.0)
