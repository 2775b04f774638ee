"""Reads `inputs` of a job, and checks the values that a user gives when starting or retrying the job.

`${{ job.inputs.name }}` in scripts and other keywords is replaced when the job is handed out to a runner, because a
retry can have other values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from remuda.pipeline.errors import Place, Report, printable, quote
from remuda.pipeline.include.blocks import find_blocks
from remuda.pipeline.include.inputs import Input, check_value, read_as, read_declaration
from remuda.pipeline.rules.clauses import Judge
from remuda.pipeline.rules.regex import Patterns
from remuda.pipeline.spec import JobInput
from remuda.pipeline.syntax.known_keys import JOB_INPUT, nearest
from remuda.pipeline.syntax.tree import Entry, Items, Node, Scalar, Table, node_of, plain
from remuda.pipeline.syntax.typed_values import inside, mistyped
from remuda.steps.language.escaping import CLOSER, OPENER

MAX_GIVEN = 100
REPLACED_IN = ("script", "before_script", "after_script", "artifacts", "cache", "image", "services", "run")
"""Keywords whose texts may use the inputs of the job."""

_USE = re.compile(r"(?<![\w.])job\.inputs\.([\w-]+)", re.ASCII)


def read_job_inputs(report: Report, node: Node, path: str, judge: Judge) -> dict[str, JobInput]:
    """Read `inputs` of a job. Each must have a default, because pipelines start jobs without asking anybody."""
    if not isinstance(node, Table):
        mistyped(report, node, path, "a map of names")
        return {}
    inputs: dict[str, JobInput] = {}
    for name, entry in node.entries.items():
        where = inside(path, name)
        declared = read_declaration(report, entry, where, judge.patterns, JOB_INPUT)
        if declared.default is None:
            report.add(entry.key, where, 'has no "default"', "give it one")
            continue
        inputs[name] = JobInput(
            type=declared.type,
            default=plain(declared.default),
            options=declared.options,
            regex=declared.regex,
            description=declared.description,
        )
    return inputs


def check_uses(report: Report, entries: Mapping[str, Entry], name: str, inputs: Mapping[str, JobInput]) -> None:
    """Report uses of inputs that the job `name` does not have, each input once. Warns of texts with invalid
    expressions, in which nothing is replaced."""
    known = set(inputs)
    for key in REPLACED_IN if inputs else ():
        for scalar in _scalars(entries[key].value) if key in entries else ():
            blocks = find_blocks(scalar.text, OPENER, CLOSER)
            used = dict.fromkeys(use for block in blocks for use in _USE.findall(scalar.text, *block))
            for each in used.keys() - known:
                known.add(each)
                suggestion = nearest(each, inputs) or 'declare it under "inputs"'
                report.add(scalar, inside(name, key), f"there is no input {quote(each)}", suggestion)
            if used and (problem := _find_problem(scalar.text)):
                message = f"an expression is invalid, so no input is replaced: {problem}"
                report.warn(scalar, inside(name, key), message)


def _find_problem(text: str) -> str:
    from remuda.steps.language.errors import ExpressionError  # imported only for a file with inputs of jobs
    from remuda.steps.language.template import parse_template

    try:
        parse_template(text)
    except ExpressionError as error:
        return printable(str(error).partition("\n")[0], 300)
    return ""


def _scalars(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, Items):
        for item in node.items:
            yield from _scalars(item)
    elif isinstance(node, Table):
        for entry in node.entries.values():
            yield from _scalars(entry.value)


def check_given(declared: Mapping[str, JobInput], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a user gives for the inputs of a job; texts are parsed as the declared type. Raises
    `PipelineError` with all mistakes: unknown inputs, and values that do not fit."""
    report, patterns, place = Report("job_inputs"), Patterns(), Place()
    values: dict[str, Any] = {}
    if len(given) > MAX_GIVEN:
        report.stop(place, "", f"more than {MAX_GIVEN} inputs are given")
    for name, value in given.items():
        declaration = declared.get(name)
        if declaration is None:
            suggestion = nearest(name, declared) or "the job's inputs are in the pipeline file"
            report.add(place, name, f"the job has no input {quote(name)}", suggestion)
            continue
        node = read_as(declaration.type, node_of(value, place))
        expected = Input(
            type=declaration.type,
            default=None,
            options=declaration.options,
            regex=declaration.regex,
            key=Scalar(text=name, kind="text", line=1, column=1),
        )
        if check_value(report, expected, node, name, patterns):
            values[name] = plain(node)
    report.finish()
    return values
