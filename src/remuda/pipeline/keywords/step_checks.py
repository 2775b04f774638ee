"""Checks the steps of a job's `run` with the step language itself: names, expressions, references, inputs.

A mistake here would fail the job on every runner. Inputs are compared with a definition of the same repository as a
warning (see `run`). `run` calls this only for jobs that have steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from remuda.pipeline.errors import Placed, Report, printable, quote
from remuda.pipeline.keywords.run import ReadFile
from remuda.pipeline.rules.globs import normal_path
from remuda.pipeline.syntax.known_keys import Keys, nearest
from remuda.pipeline.syntax.tree import Entry, Items, Node, Scalar, Table, plain
from remuda.pipeline.syntax.typed_values import inside, is_null, report_key
from remuda.steps.errors import DefinitionError
from remuda.steps.language import syntax
from remuda.steps.language.checking import mismatch
from remuda.steps.language.errors import ExpressionError
from remuda.steps.language.escaping import OPENER
from remuda.steps.language.evaluate import FUNCTIONS, Context, unknown_functions
from remuda.steps.language.reading import read_step
from remuda.steps.language.references import LONG_FORMS, parse_reference
from remuda.steps.language.template import Hole, parse_template
from remuda.steps.language.values import MISSING, NAME, Reference, ReferenceKind, Spec
from remuda.steps.resolving.builtins import Builtins, find_packages
from remuda.steps.resolving.errors import ResolveError

_NAMES = tuple(Context().names())
_DEFINITIONS = ("func.yml", "step.yml")
_A_NAME = "use letters, digits and _, and no digit first"


def check_steps(report: Report, steps: Sequence[Mapping[str, Entry]], path: str, read_file: ReadFile) -> None:
    """Report mistakes in a list of steps, each given by its keys. `path`: the key of the list, for messages."""
    names = [_name_of(step) for step in steps]
    for index, step in enumerate(steps):
        checks = _StepChecks(report, earlier=names[:index], own=names[index], later=names[index + 1 :])
        checks.check(step, path, read_file)


def _name_of(step: Mapping[str, Entry]) -> str:
    value = step["name"].value if "name" in step else None
    return value.text if isinstance(value, Scalar) else ""


class _StepChecks:
    """Checks one step. `earlier` and `later` have the names of the steps before and after it."""

    def __init__(self, report: Report, *, earlier: Sequence[str], own: str, later: Sequence[str]) -> None:
        self._report = report
        self._earlier = earlier
        self._own = own
        self._later = later

    def check(self, step: Mapping[str, Entry], path: str, read_file: ReadFile) -> None:
        name = step.get("name")
        if name is not None and self._own and not NAME.fullmatch(self._own):
            message = f"{quote(self._own)} is not a name of a step"
            self._report.add(name.value, inside(path, "name"), message, _A_NAME)
        for key in ("script", "inputs", "env"):
            if key in step:
                self._check_value(step[key].value, inside(path, key))
        for key in ("inputs", "env"):
            if key in step and isinstance(step[key].value, Table):
                self._check_names(step[key].value, inside(path, key))
        for key in ("step", "func"):
            if key not in step:
                continue
            self._check_value(step[key].value, inside(path, key))
            reference = self._read_reference(step[key].value, inside(path, key))
            if reference is not None and reference.kind is ReferenceKind.LOCAL:
                self._compare(step, key, path, reference, read_file)
            elif reference is not None and reference.kind is ReferenceKind.BUILTIN:
                self._compare_builtin(step, key, path, reference)

    def _check_names(self, node: Node, path: str) -> None:
        assert isinstance(node, Table)
        for key, entry in node.entries.items():
            if OPENER not in key and not NAME.fullmatch(key):
                self._report.add(entry.key, path, f"{quote(key)} is not a name", _A_NAME)

    def _check_value(self, node: Node, path: str) -> None:
        match node:
            case Scalar(kind="text", text=text):
                self._check_text(node, path, text)
            case Items(items=items):
                for item in items:
                    self._check_value(item, path)
            case Table(entries=entries):
                for key, entry in entries.items():
                    self._check_text(entry.key, inside(path, key), key)
                    self._check_value(entry.value, inside(path, key))

    def _check_text(self, at: Placed, path: str, text: str) -> None:
        if OPENER not in text:
            return
        try:
            parts = parse_template(text)
        except ExpressionError as error:
            self._report.add(at, path, printable(str(error), 300), f"to write {OPENER} itself, put a \\ before it")
            return
        for part in parts:
            if isinstance(part, Hole):
                line = f", line {part.line} of the text" if part.line else ""
                for message, suggestion in self._find_mistakes(part.tree):
                    shown = f"{quote(syntax.excerpt(part.source))}{line}: {message}"
                    self._report.add(at, path, shown, suggestion)

    def _find_mistakes(self, tree: syntax.Node) -> Iterator[tuple[str, str]]:
        """Yield message and suggestion for names that an expression can never find."""
        for function in unknown_functions(tree):
            yield f"there is no function {quote(function)}", f"known: {', '.join(FUNCTIONS)}"
        for node in _certain_nodes(tree):
            match node:
                case syntax.Name(name=name) if name not in _NAMES:
                    yield f"there is no {quote(name)}", nearest(name, _NAMES) or f"known: {', '.join(_NAMES)}"
                case syntax.Attribute(subject=syntax.Name(name="inputs")):
                    yield "the steps of a job have no inputs of their own", 'use "vars" or "env"'
                case (
                    syntax.Attribute(subject=syntax.Name(name="steps"), name=name)
                    | syntax.Index(subject=syntax.Name(name="steps"), key=syntax.Literal(value=str(name)))
                ) if name not in self._earlier:
                    yield self._explain_missing(name)
                case syntax.Attribute(
                    subject=syntax.Attribute(subject=syntax.Name(name="steps"), name=step), name=name
                ) if name != "outputs":
                    yield f"a step has no {quote(name)}", f'write "steps.{printable(step)}.outputs.NAME"'

    def _explain_missing(self, name: str) -> tuple[str, str]:
        if name == self._own:
            return f"the step {quote(name)} cannot use its own outputs", "use those of an earlier step"
        if name in self._later:
            return f"the step {quote(name)} runs later", "move it before this one"
        return f"there is no step {quote(name)} before this one", nearest(name, tuple(self._earlier))

    def _read_reference(self, node: Node, path: str) -> Reference | None:
        """Return the reference to a step; None, with a mistake reported, if it is invalid or incomplete."""
        written: Any = plain(node)
        if isinstance(node, Table):
            for kind, entry in node.entries.items():
                if kind not in LONG_FORMS:
                    report_key(self._report, entry.key, path, Keys(works=tuple(LONG_FORMS)))
                    return None
                if isinstance(entry.value, Table) and len(node.entries) == 1:
                    needed, allowed = LONG_FORMS[kind]
                    known = Keys(works=(*sorted(needed), *sorted(allowed)))
                    for key, field in entry.value.entries.items():
                        if key not in known.works:
                            report_key(self._report, field.key, inside(path, kind), known)
                            return None
                    fields = {key: field.value for key, field in entry.value.entries.items()}
                    written = {kind: {k: v.text for k, v in fields.items() if isinstance(v, Scalar) and not is_null(v)}}
        elif not isinstance(node, Scalar) or node.kind != "text" or not node.text:
            return None
        try:
            return parse_reference(written, "")
        except DefinitionError as error:
            self._report.add(node, path, printable(str(error).removeprefix(": "), 300))
            return None

    def _compare(
        self, step: Mapping[str, Entry], key: str, path: str, reference: Reference, read_file: ReadFile
    ) -> None:
        """Warn if the repository does not have the definition of the step, or if the inputs do not fit it."""
        folder = normal_path(reference.path)
        if folder is None or reference.path.startswith("/"):
            return
        at = step[key].value
        for name in (reference.file,) if reference.file else _DEFINITIONS:
            file = f"{folder}/{name}" if folder else name
            if (text := read_file(file)) is not None:
                break
        else:
            missing = f"{folder}/{reference.file or _DEFINITIONS[0]}"
            message = f"the repository has no file {quote(missing.lstrip('/'))}"
            self._report.warn(at, inside(path, key), message, "correct the path, unless an earlier step creates it")
            return
        try:
            spec = read_step(text, file=file).spec
        except DefinitionError as error:
            self._report.warn(at, inside(path, key), printable(str(error).partition("\n")[0], 300))
            return
        self._compare_inputs(step, at, inside(path, "inputs"), file, spec)

    def _compare_builtin(self, step: Mapping[str, Entry], key: str, path: str, reference: Reference) -> None:
        """Warn if this version of Remuda does not come with the step, or if the inputs do not fit it."""
        at, builtins = step[key].value, Builtins(find_packages())
        try:
            bundled = builtins.choose(reference.path, reference.version)
        except ResolveError:
            names = tuple(builtins.names())
            if reference.path in names:
                message = f"Remuda has no version {quote(reference.version)} of {quote(reference.path)}"
                suggestion = f"write builtin://{printable(reference.path)}"
            else:
                message = f"Remuda comes with no step {quote(reference.path)}"
                suggestion = nearest(reference.path, names) or f"known: {', '.join(names)}"
            self._report.warn(at, inside(path, key), message, suggestion)
            return
        spec = read_step(bundled.text, file=f"builtin://{bundled.name}").spec
        self._compare_inputs(step, at, inside(path, "inputs"), f"builtin://{bundled.name}", spec)

    def _compare_inputs(self, step: Mapping[str, Entry], at: Placed, path: str, file: str, spec: Spec) -> None:
        node = step["inputs"].value if "inputs" in step else None
        given = node.entries if isinstance(node, Table) else {}
        has_dynamic = any(OPENER in name for name in given)
        for name, parameter in spec.inputs.items():
            if parameter.default is MISSING and name not in given and not has_dynamic:
                self._report.warn(at, path, f"the input {quote(name)} of {file} is missing", "give it a value")
        for name, entry in given.items():
            if OPENER in name:
                continue
            if name not in spec.inputs:
                suggestion = nearest(name, tuple(spec.inputs))
                self._report.warn(entry.key, path, f"{file} has no input {quote(name)}", suggestion)
            elif not _has_expression(value := plain(entry.value)) and (
                problem := mismatch(spec.inputs[name].type, value)
            ):
                self._report.warn(entry.value, inside(path, name), problem)


def _certain_nodes(tree: syntax.Node) -> Iterator[syntax.Node]:
    """Yield the nodes that an evaluation visits and whose values must exist: not those left of `||`, which may be
    missing, nor those in the parts that follow `&&` or `||`, which may not be evaluated."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, syntax.Binary) and node.operator in ("&&", "||"):
            pending += [node.left] if node.operator == "&&" else []
            continue
        yield node
        pending += syntax.children(node)


def _has_expression(value: Any) -> bool:
    match value:
        case str():
            return OPENER in value
        case list():
            return any(map(_has_expression, value))
        case dict():
            return any(OPENER in key or _has_expression(item) for key, item in value.items())
    return False
