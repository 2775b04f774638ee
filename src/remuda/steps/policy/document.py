"""Parses the text of a policy. A message about a mistake names the author of the document and the key. No I/O.

Agent, manager and cell call it as soon as they get a document, so that the author learns of a mistake early. Unknown
keys are refused: if a misspelt key were ignored, a step that the author wants to deny would be allowed."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from remuda.steps.errors import DefinitionError, PolicyError
from remuda.steps.language.references import parse_reference
from remuda.steps.language.values import Call, Place, Reference, ReferenceKind
from remuda.steps.policy.values import Insertion, Layer, Policy, Rule, Source
from remuda.steps.policy.versions import check_range
from remuda.steps.process.limits import NAMES, NO_LIMITS, Limits

VERSION = 1
"""Version of the form in which layers are sent together."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_LARGEST = 2.0**53
"""Largest value of a limit; a float cannot represent every integer above it."""
_TIME = re.compile(r"(?:(\d+)h)?\s*(?:(\d+)m)?\s*(?:(\d+(?:\.\d+)?)s)?", re.ASCII)
_HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9_.-]+(?::\d{1,5})?|\*|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?")
_ENGINE = re.compile(r"(?:unix|tcp|http)://\S+|\*\*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_KINDS = {"builtin", "local", "git", "oci"}
_CONDITIONS = {"success()", "failure()", "always()"}


def parse_policy(text: str) -> Policy:
    """Parse `{"version": 1, "layers": [{"author": ..., "document": {...}}]}`; an empty text gives an empty policy. A
    layer is the policy document of one author: runner, organization, group or project. `"delegated": true`: this agent
    runs a part of a job for another agent, which itself runs the steps that the policy adds. `"variables"` and
    `"server_ca"` are what the manager passes to these steps. Raises PolicyError if the text is invalid."""
    if not text.strip():
        return Policy()
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"policy: invalid JSON: {error}") from None
    fields = _Mapping(whole, "policy", {"version", "layers", "delegated", "variables", "server_ca"})
    if fields.take("version") != VERSION:
        raise PolicyError(
            f"policy.version: this agent knows {VERSION}, not {fields.take('version')!r}; use a newer agent"
        )
    layers = []
    for index, item in enumerate(fields.items("layers")):
        layer = _Mapping(item, f"policy.layers[{index}]", {"author", "document"})
        layers.append(parse_layer(layer.take("document"), author=layer.text("author")))
    _check_names(layers)
    return Policy(
        layers=tuple(layers),
        is_delegated=fields.take("delegated") is True,
        variables=_variables(fields),
        server_ca=fields.text("server_ca", ""),
    )


def parse_layer(document: Any, *, author: str) -> Layer:
    keys = {"default", "rules", "limits", "insert", "substitutes", "engines", "advisory"}
    fields = _Mapping(document, f"policy of {author}", keys, separator=": ")
    limits, _ = _limits(fields)
    substitutes = _Mapping(fields.inner("substitutes"), fields.path("substitutes"), None)
    layer = Layer(
        author=author,
        allows_by_default=fields.choice("default", ("allow", "deny")) == "allow",
        rules=tuple(
            _rule(item, fields.path(f"rules[{index}]"), index) for index, item in enumerate(fields.items("rules"))
        ),
        limits=limits,
        insertions=tuple(
            _insertion(item, fields.path(f"insert[{index}]")) for index, item in enumerate(fields.items("insert"))
        ),
        substitutes={key: substitutes.text(key) for key in substitutes},
        engines=fields.texts(
            "engines", _ENGINE, "an address of a container engine, like unix:///run/user/*/docker.sock"
        ),
        refuses_advisory=fields.choice("advisory", ("allow", "deny")) == "deny",
    )
    _check_names([layer])
    return layer


def _variables(outer: "_Mapping") -> dict[str, str]:
    fields = _Mapping(outer.inner("variables"), outer.path("variables"), None)
    variables = {name: fields.text(name, "") for name in fields}
    for name, value in variables.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise PolicyError(f"{fields.path(name)}: not a valid name or value of an environment variable")
    return variables


def _rule(item: Any, where: str, index: int) -> Rule:
    fields = _Mapping(item, where, {"name", "allow", "deny", "version", "digest", "commit", "reason", "limits"})
    if ("allow" in fields) == ("deny" in fields):
        raise PolicyError(f"{where}: write either allow or deny, with the sources of the steps it is about")
    key = "allow" if "allow" in fields else "deny"
    version = fields.text("version", "")
    if version and (wrong := check_range(version)):
        raise PolicyError(f"{fields.path('version')}: {wrong}")
    if key == "deny" and "limits" in fields:
        raise PolicyError(f"{fields.path('limits')}: a rule that denies has no limits; remove them, or write allow")
    limits, lifted = _limits(fields)
    return Rule(
        name=fields.text("name", f"rule {index + 1}"),
        allows=key == "allow",
        sources=_sources(fields, key),
        version=version,
        digests=fields.texts("digest", _DIGEST, "sha256: and 64 hexadecimal digits"),
        commits=fields.texts("commit", _COMMIT, "a whole commit of 40 or 64 hexadecimal digits"),
        reason=fields.text("reason", ""),
        limits=limits,
        lifted=lifted,
    )


def _insertion(item: Any, where: str) -> Insertion:
    keys = {"name", "step", "script", "inputs", "env", "before", "after", "if", "timeout"}
    fields = _Mapping(item, where, keys)
    name = fields.text("name")
    if not _NAME.fullmatch(name):
        raise PolicyError(f"{fields.path('name')}: a name of letters, digits and _ is needed, not {name!r}")
    if ("before" in fields) == ("after" in fields):
        raise PolicyError(f'{where}: write either before or after, with "job" or the sources of steps')
    key = "before" if "before" in fields else "after"
    condition = fields.choice("if", ("success()" if key == "before" else "always()", *sorted(_CONDITIONS)))
    inputs = fields.inner("inputs")
    if ("step" in fields) == ("script" in fields):
        raise PolicyError(f"{where}: write either step or script")
    if "script" in fields:
        if inputs:
            raise PolicyError(f"{fields.path('inputs')}: a script has no inputs; remove them, or write step")
        reference = Reference(kind=ReferenceKind.BUILTIN, text="builtin://script", path="script")
        inputs = {"script": fields.text("script")}
    else:
        reference = _reference(fields)
    env = _Mapping(fields.inner("env"), fields.path("env"), None)
    return Insertion(
        call=Call(
            name=name,
            place=Place(file=where, line=0),
            reference=reference,
            inputs=inputs,
            env={variable: env.text(variable) for variable in env},
            condition=condition,
            timeout_seconds=_seconds(fields.take("timeout"), fields.path("timeout")) if "timeout" in fields else None,
            origin="inserted",
        ),
        is_before=key == "before",
        around=() if fields.take(key) == "job" else _sources(fields, key),
    )


def _reference(fields: "_Mapping") -> Reference:
    where = fields.path("step")
    try:
        reference = parse_reference(fields.take("step"), Place(file=where, line=0))
    except DefinitionError as error:
        raise PolicyError(f"{where}: {error}") from None
    if reference.kind is ReferenceKind.DYNAMIC:
        raise PolicyError(f"{where}: the reference of an inserted step must not contain an expression")
    if reference.kind is ReferenceKind.LOCAL and not reference.path.startswith("/"):
        raise PolicyError(
            f"{where}: a path in the job's own folder could be changed by the job; write an absolute path"
        )
    return reference


def _sources(fields: "_Mapping", key: str) -> tuple[Source, ...]:
    sources = []
    for text in fields.texts(key):
        kind, colon, glob = text.partition(":")
        if text == "*":
            sources.append(Source(kind=None))
        elif kind not in _KINDS or (colon and not glob):
            near = nearest(kind, _KINDS)
            kinds = "builtin, local, git, oci or *, optionally followed by : and a pattern"
            raise PolicyError(f"{fields.path(key)}: {text!r}: a source begins with {kinds}{near}")
        else:
            sources.append(Source(kind=ReferenceKind(kind), glob=glob))
    if not sources:
        raise PolicyError(f"{fields.path(key)}: no source; write * for every step")
    return tuple(sources)


def _limits(outer: "_Mapping") -> tuple[Limits, frozenset[str]]:
    """Parse the `limits` of a policy document or rule, and the names of those with the value `any` (no limit)."""
    if "limits" not in outer:
        return NO_LIMITS, frozenset()
    fields = _Mapping(outer.take("limits"), outer.path("limits"), set(NAMES.values()))
    readers: dict[str, Callable[[Any, str], Any]] = {
        "network": _network,
        "memory_bytes": _size,
        "cpus": _positive,
        "disk_bytes": _size,
        "pids": _whole,
        "timeout_seconds": _seconds,
    }
    names = {field: name for field, name in NAMES.items() if name in fields and fields.take(name) != "any"}
    values = {field: readers[field](fields.take(name), fields.path(name)) for field, name in names.items()}
    return Limits(**values), frozenset(fields) - frozenset(names.values())


def _network(value: Any, where: str) -> tuple[tuple[str, ...], ...]:
    if value == "none":
        return ((),)
    if not isinstance(value, dict):
        raise PolicyError(f'{where}: write "none", "any" or {{"allow": [hosts]}}')
    return (_Mapping(value, where, {"allow"}).texts("allow", _HOST, "a host, like example.com, *.example.com:443"),)


def _size(value: Any, where: str) -> int:
    match = _SIZE.fullmatch(str(value).strip()) if isinstance(value, (int, str)) and value is not True else None
    size = float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " ") if match else 0
    if not 1 <= size <= _LARGEST:
        raise PolicyError(f'{where}: {value!r} is not a size; write bytes, or for example "512m" or "2g"')
    return int(size)


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, str) and value.strip() and (match := _TIME.fullmatch(value.strip())):
        value = float(match[1] or 0) * 3600 + float(match[2] or 0) * 60 + float(match[3] or 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST:
        raise PolicyError(f'{where}: {value!r} is not a duration; write seconds, or for example "30m" or "1h 30m"')
    return float(value)


def _positive(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST:
        raise PolicyError(f"{where}: {value!r} is not a number of processors; write for example 1.5")
    return float(value)


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _LARGEST:
        raise PolicyError(f"{where}: {value!r} is not a whole number above 0")
    return value


def _check_names(layers: Collection[Layer]) -> None:
    seen: dict[str, str] = {}
    for layer in layers:
        for insertion in layer.insertions:
            name = insertion.call.name
            if name in seen:
                raise PolicyError(
                    f'policy of {layer.author}: insert: the name "{name}" is taken by the policy of {seen[name]}; '
                    "give one of the two steps another name"
                )
            seen[name] = layer.author


def nearest(key: str, keys: Collection[str]) -> str:
    """Return a hint about an unknown key: the most similar one of `keys`; empty if none is similar."""
    import difflib  # imported only for a mistake

    close = difflib.get_close_matches(key, sorted(keys), n=1)
    return f"; did you mean {close[0]}?" if close else ""


class _Mapping:
    """A JSON object in a policy, with its position for messages. `allowed`: the keys it may have; None allows any."""

    def __init__(self, value: Any, where: str, allowed: Collection[str] | None, *, separator: str = ".") -> None:
        if not isinstance(value, dict):
            raise PolicyError(f"{where}: an object is needed, not {_kind(value)}")
        for key in value:
            if allowed is not None and key not in allowed:
                near = nearest(str(key), allowed) or f"; known: {', '.join(sorted(allowed))}"
                raise PolicyError(f"{where}{separator}{key}: unknown key{near}")
        self._value: Mapping[str, Any] = value
        self._where = where
        self._separator = separator

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def __iter__(self) -> Any:
        return iter(self._value)

    def path(self, key: str) -> str:
        return f"{self._where}{self._separator}{key}"

    def take(self, key: str) -> Any:
        return self._value.get(key)

    def text(self, key: str, default: str | None = None) -> str:
        if key not in self._value and default is not None:
            return default
        value = self._value.get(key)
        if not isinstance(value, str) or (not value and default is None):
            raise PolicyError(f"{self.path(key)}: a string is needed, not {_kind(value)}")
        return value

    def texts(self, key: str, pattern: re.Pattern[str] | None = None, what: str = "") -> tuple[str, ...]:
        value = self._value.get(key, [])
        for item in value if isinstance(value, list) else (value := [value]):
            if not isinstance(item, str) or not item:
                raise PolicyError(f"{self.path(key)}: a string or a list of strings is needed, not {_kind(item)}")
            if pattern is not None and not pattern.fullmatch(item):
                raise PolicyError(f"{self.path(key)}: {item!r} is not {what}")
        return tuple(value)

    def items(self, key: str) -> list[Any]:
        value = self._value.get(key, [])
        if not isinstance(value, list):
            raise PolicyError(f"{self.path(key)}: a list is needed, not {_kind(value)}")
        return value

    def inner(self, key: str) -> dict[str, Any]:
        value = self._value.get(key, {})
        if not isinstance(value, dict):
            raise PolicyError(f"{self.path(key)}: an object is needed, not {_kind(value)}")
        return value

    def choice(self, key: str, words: tuple[str, ...]) -> str:
        """Return the value of a key, by default the first of `words`. Raises PolicyError if it is none of `words`."""
        value = self._value.get(key, words[0])
        if value not in words:
            options = ", ".join(dict.fromkeys(words))
            raise PolicyError(f"{self.path(key)}: {value!r} is not one of {options}{nearest(str(value), words)}")
        return str(value)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "an empty string" if not value else "a string"
        case list():
            return "a list"
    return "an object"
