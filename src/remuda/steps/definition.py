"""From the text of a request to the steps of a job: two documents, the spec and the definition, JSON or YAML.

Everything is checked here, before a job exists: unknown keys, wrong types, names used twice. The keys upstream does
not have (`if`, `timeout`, `continue_on_error`, `origin`) need `{"spec": {"remuda": 1}}`, because another step runner
would drop them silently. Pure; when a step runs is decided in `plan`, how in `script` and `shim`.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from remuda.steps.errors import DefinitionError

T = TypeVar("T")

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
BUILTINS = ("script", "checkout", "cache_restore", "cache_save", "artifacts_download", "artifacts_upload")
EXTENSIONS = frozenset({"if", "timeout", "continue_on_error", "origin"})
ORIGINS = ("user", "compiled")
_ENTRY_KEYS = frozenset({"name", "script", "step", "inputs", "env"})
_SEPARATOR = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)


class Condition(StrEnum):
    """When a step runs."""

    SUCCESS = "success()"  # nothing has failed and nobody stopped the job
    FAILURE = "failure()"  # something has failed, or the job was stopped
    ALWAYS = "always()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One entry of the list, checked."""

    name: str
    builtin: str
    inputs: Mapping[str, Any]
    env: Mapping[str, str]
    condition: Condition = Condition.SUCCESS
    timeout_seconds: float | None = None
    continue_on_error: bool = False
    origin: str = "user"

    @property
    def reference(self) -> str:
        """The step package and its version, as results name it."""
        return f"builtin://{self.builtin}@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The steps of a job, in order."""

    steps: tuple[Step, ...]


def parse_definition(text: str) -> Definition:
    """Read and check the two documents."""
    if "\0" in text:
        raise DefinitionError("steps: the text holds a NUL byte; remove it")
    documents = _documents(text)
    if len(documents) < 2:
        raise DefinitionError(
            'steps: two documents separated by a line "---" are needed: the spec, then the definition'
        )
    extended = _read_spec(documents[0])
    definition = _mapping(documents[1], "definition")
    _check_keys(definition, frozenset({"run"}), "definition")
    entries = definition.get("run")
    if not isinstance(entries, list) or not entries:
        raise DefinitionError("run: a list of at least one step is needed")
    steps: list[Step] = []
    for index, entry in enumerate(entries):
        step = _read_entry(entry, f"run[{index}]", extended)
        if any(step.name == other.name for other in steps):
            raise DefinitionError(f'run[{index}]: the name "{step.name}" is used twice; every step needs its own')
        steps.append(step)
    return Definition(steps=tuple(steps))


def _read_spec(document: object) -> bool:
    """Whether the spec allows our extensions."""
    if document is None:
        return False
    root = _mapping(document, "spec document")
    _check_keys(root, frozenset({"spec"}), "spec document")
    if root.get("spec") is None:
        return False
    spec = _mapping(root["spec"], "spec")
    for key in ("inputs", "outputs"):
        if spec.get(key):
            raise DefinitionError(f"spec.{key}: not supported yet")
    _check_keys(spec, frozenset({"remuda", "inputs", "outputs"}), "spec")
    version = spec.get("remuda")
    if version not in (None, 1) or isinstance(version, bool):
        raise DefinitionError(f"spec.remuda: this agent knows version 1, not {version!r}; use a newer agent")
    return version == 1


def _read_entry(entry: object, place: str, extended: bool) -> Step:
    values = _mapping(entry, place)
    name = values.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise DefinitionError(f"{place}.name: a name of letters, digits and _ is needed, not {name!r}")
    place = f"{place} ({name})"
    if not extended and (gated := EXTENSIONS & values.keys()):
        key = min(gated)
        raise DefinitionError(f'{place}: "{key}" needs {{"spec": {{"remuda": 1}}}} in the first document')
    _check_keys(values, _ENTRY_KEYS | EXTENSIONS if extended else _ENTRY_KEYS, place)
    builtin, inputs = _read_work(values, place)
    return Step(
        name=name,
        builtin=builtin,
        inputs=inputs,
        env=_read_env(values.get("env"), f"{place}.env"),
        condition=_read_condition(values.get("if"), f"{place}.if"),
        timeout_seconds=_read_timeout(values.get("timeout"), f"{place}.timeout"),
        continue_on_error=_one_of(values.get("continue_on_error"), (False, True), f"{place}.continue_on_error"),
        origin=_one_of(values.get("origin"), ORIGINS, f"{place}.origin"),
    )


def _read_work(values: Mapping[str, Any], place: str) -> tuple[str, Mapping[str, Any]]:
    """What the entry runs and with which inputs."""
    if ("script" in values) == ("step" in values):
        raise DefinitionError(f'{place}: exactly one of "script" and "step" is needed')
    if "script" in values:
        if "inputs" in values:
            raise DefinitionError(f'{place}: "inputs" belongs to "step", not to "script"')
        return "script", {"script": _read_script(values["script"], f"{place}.script", lists=False)}
    reference = values["step"]
    if not isinstance(reference, str):
        raise DefinitionError(f"{place}.step: a text like builtin://checkout is needed")
    scheme, _, builtin = reference.partition("://")
    if scheme != "builtin":
        raise DefinitionError(f'{place}.step: only builtin:// steps are supported yet, not "{reference}"')
    if builtin not in BUILTINS:
        raise DefinitionError(f'{place}.step: there is no builtin "{builtin}"{_nearest(builtin, BUILTINS)}')
    inputs = _mapping(values.get("inputs") or {}, f"{place}.inputs")
    if builtin == "script":
        _check_keys(inputs, frozenset({"script"}), f"{place}.inputs")
        return builtin, {"script": _read_script(inputs.get("script"), f"{place}.inputs.script", lists=True)}
    _refuse_expressions(inputs, f"{place}.inputs")
    return builtin, inputs


def _read_script(value: object, place: str, *, lists: bool) -> str | list[str]:
    if isinstance(value, str) and value:
        return value
    if lists and isinstance(value, list) and value and all(isinstance(command, str) for command in value):
        return value
    raise DefinitionError(f"{place}: a text{' or a list of texts' if lists else ''} is needed, and not an empty one")


def _read_env(value: object, place: str) -> Mapping[str, str]:
    env: dict[str, str] = {}
    for key, text in _mapping(value or {}, place).items():
        if not NAME.fullmatch(key):
            raise DefinitionError(f'{place}: "{key}" is no name of a variable (letters, digits, _)')
        match text:
            case None:
                env[key] = ""
            case bool():
                env[key] = "true" if text else "false"
            case int() | str():
                env[key] = str(text)
            case _:
                raise DefinitionError(f"{place}.{key}: a text is needed; put the value in quotes")
    _refuse_expressions(env, place)
    return env


def _read_condition(value: object, place: str) -> Condition:
    return Condition(_one_of(value, tuple(Condition), place))


def _read_timeout(value: object, place: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise DefinitionError(f"{place}: a positive number of seconds is needed, not {value!r}")
    return float(value)


def _one_of(value: object, choices: Sequence[T], place: str) -> T:
    """One of the choices; the first where nothing is said."""
    if value is None:
        return choices[0]
    for choice in choices:
        if value == choice and isinstance(value, bool) == isinstance(choice, bool):
            return choice
    raise DefinitionError(f"{place}: one of {', '.join(map(str, choices))} is needed, not {value!r}")


def _mapping(value: object, place: str) -> Mapping[str, Any]:
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return value
    raise DefinitionError(f"{place}: a mapping of names to values is needed")


def _check_keys(values: Mapping[str, Any], known: frozenset[str], place: str) -> None:
    for key in values:
        if key not in known:
            raise DefinitionError(f'{place}: unknown key "{key}"{_nearest(key, sorted(known))}')


def _nearest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f'; did you mean "{close[0]}"?' if close else f"; known: {', '.join(known)}"


def _refuse_expressions(value: object, place: str) -> None:
    if isinstance(value, str) and "${{" in value:
        raise DefinitionError(f"{place}: expressions are not supported yet")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_expressions(key, place)
            _refuse_expressions(item, f"{place}.{key}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_expressions(item, f"{place}[{index}]")


def _documents(text: str) -> list[object]:
    """Both documents. JSON is tried first: it is what a runner manager sends, and it needs no further module."""
    parts = _SEPARATOR.split(text)
    if len(parts) > 2 and not parts[0].strip():
        parts = parts[1:]  # a text may begin with the separator
    try:
        return [json.loads(part, object_pairs_hook=_unique) if part.strip() else None for part in parts[:2]]
    except (ValueError, RecursionError):
        lines_before = text[: text.rindex(parts[1])].count("\n") if len(parts) > 1 else 0
        return [_read_yaml(parts[0], 0), *(_read_yaml(part, lines_before) for part in parts[1:2])]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        _refuse_twice(next(key for key in keys if keys.count(key) > 1))
    return values


def _refuse_twice(key: object, where: str = "") -> NoReturn:
    raise DefinitionError(f'steps{where}: the key "{key}" stands twice in one mapping')


def _read_yaml(text: str, lines_before: int) -> object:
    import yaml

    class Loader(yaml.SafeLoader):
        """YAML as the step runner reads it: `yes` and dates are text, a key stands once."""

        yaml_implicit_resolvers = {  # noqa: RUF012 - the loader's own way to configure it
            first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":bool"))]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for key in keys:
                if key != "<<" and keys.count(key) > 1:
                    _refuse_twice(key, f", line {lines_before + node.start_mark.line + 1}")
            return super().construct_mapping(node, deep)

    Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|True|TRUE|false|False|FALSE"), list("tTfF"))
    try:
        return yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        line = f", line {lines_before + error.problem_mark.line + 1}" if error.problem_mark else ""
        raise DefinitionError(f"steps{line}: {error.problem or 'not a YAML text'}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DefinitionError(f"steps: not a YAML text: {type(error).__name__}") from None
