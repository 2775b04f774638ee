"""Reads from a pipeline file what a user may set when starting a pipeline: its inputs, and the variables of the file.

The form for new pipelines shows them. The values are checked later, by the compiler, when the pipeline starts."""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.pipeline.errors import Mistake, PipelineError, Place, Report
from remuda.pipeline.facts import Facts
from remuda.pipeline.include.includes import Loader, Origin, SourceFile
from remuda.pipeline.include.inputs import Input
from remuda.pipeline.include.port import MemorySources, Sources
from remuda.pipeline.rules.clauses import Judge
from remuda.pipeline.rules.regex import TooCostlyError
from remuda.pipeline.syntax.tree import Items, Merger, Node, Scalar, Table, plain

MOST_FIELDS = 500
"""How many inputs, and how many variables, are listed."""


class StartInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input that the file declares. An input without a default must be given, unless it has rules."""

    name: str
    type: str
    description: str = ""
    has_default: bool = False
    default: Any = None
    options: tuple[str, ...] = ()
    regex: str = ""
    depends_on: tuple[str, ...] = ()
    """Names of other inputs, whose values decide about its default and options."""


class StartVariable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of the file that has a description or options."""

    name: str
    value: str = ""
    description: str = ""
    options: tuple[str, ...] = ()


class StartForm(msgspec.Struct, frozen=True, kw_only=True):
    inputs: tuple[StartInput, ...] = ()
    variables: tuple[StartVariable, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    """Why the file could not be read to its end; other mistakes are reported when the pipeline starts."""


def read_start_form(
    text: str, *, file: str = ".gitlab-ci.yml", facts: Facts | None = None, sources: Sources | None = None
) -> StartForm:
    """Return the inputs of a pipeline file, and its variables that have a description or options. Takes the arguments
    of `compile_pipeline`."""
    report = Report(file)
    judge = Judge(report, facts or Facts(), sources or MemorySources())
    loader = Loader(report, judge, sources or MemorySources(), Merger(report))
    root: Table | None = None
    mistakes: tuple[Mistake, ...] = ()
    try:
        root = loader.load(SourceFile(text=text, file="", origin=Origin()), {}, at=Place(), path="inputs")
    except PipelineError as error:
        mistakes = error.errors
    except TooCostlyError:
        pass  # starting the pipeline reports it
    inputs = [_describe_input(name, declared) for name, declared in loader.declared.items()]
    return StartForm(
        inputs=tuple(inputs[:MOST_FIELDS]), variables=_list_variables(root)[:MOST_FIELDS], mistakes=mistakes
    )


def _describe_input(name: str, declared: Input) -> StartInput:
    return StartInput(
        name=name,
        type=declared.type,
        description=declared.description,
        has_default=declared.default is not None,
        default=None if declared.default is None else plain(declared.default),
        options=declared.options or (),
        regex=declared.regex or "",
        depends_on=tuple(dict.fromkeys(name for rule in declared.rules for name in rule.inputs)),
    )


def _list_variables(root: Table | None) -> tuple[StartVariable, ...]:
    entry = root.entries.get("variables") if root else None
    if entry is None or not isinstance(entry.value, Table):
        return ()
    variables = []
    for name, each in entry.value.entries.items():
        fields = (
            {key: field.value for key, field in each.value.entries.items()} if isinstance(each.value, Table) else {}
        )
        if "description" in fields or "options" in fields:
            options = fields.get("options")
            variables.append(
                StartVariable(
                    name=name,
                    value=_text(fields.get("value")),
                    description=_text(fields.get("description")),
                    options=tuple(map(_text, options.items)) if isinstance(options, Items) else (),
                )
            )
    return tuple(variables)


def _text(node: Node | None) -> str:
    """Return a scalar as the compiler reads it as a variable; empty for any other node."""
    if not isinstance(node, Scalar):
        return ""
    return node.kind if node.kind in ("true", "false") else node.text
