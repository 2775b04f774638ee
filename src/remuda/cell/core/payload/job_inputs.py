"""Replaces `${{ job.inputs.name }}` in the definition of a job by the values of its inputs: those that a user gave when
starting or retrying the job, else the defaults. All runners then get plain texts. Expressions are those of the step
language; one that names no input of the job stays as written, because the runner may understand it, and so does one
that cannot be evaluated."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.pipeline import JobSpec
from remuda.pipeline.spec import Artifacts
from remuda.steps.language.errors import ExpressionError
from remuda.steps.language.escaping import OPENER, escape
from remuda.steps.language.evaluate import Context, expand_text, reveal
from remuda.steps.language.template import Hole, parse_template

_USE = re.compile(r"(?<![\w.])job\.inputs\b", re.ASCII)
_FIELDS = ("script", "after_script", "cache", "image", "services")


def fill_inputs(spec: JobSpec, given: Mapping[str, Any]) -> JobSpec:
    """Return the definition of a job with the values of its inputs. A job without inputs is returned unchanged."""
    if not spec.inputs:
        return spec
    values = {name: given.get(name, declared.default) for name, declared in spec.inputs.items()}
    context = Context(vars={"inputs": values})
    fields = {name: _fill(getattr(spec, name), context) for name in _FIELDS}
    if spec.artifacts is not None:
        whole = _fill(msgspec.to_builtins(spec.artifacts), context)
        fields["artifacts"] = msgspec.convert(whole, Artifacts)
    # The steps of `run` are evaluated again by the runner, so what is not replaced must stay escaped.
    fields["run"] = _fill(spec.run, context, is_evaluated_again=True)
    return msgspec.structs.replace(spec, **fields)


def _fill(value: Any, context: Context, *, is_evaluated_again: bool = False) -> Any:
    match value:
        case str():
            return _fill_text(value, context, is_evaluated_again) if OPENER in value else value
        case list():
            return [_fill(item, context, is_evaluated_again=is_evaluated_again) for item in value]
        case tuple():
            return tuple(_fill(item, context, is_evaluated_again=is_evaluated_again) for item in value)
        case dict():
            return {key: _fill(item, context, is_evaluated_again=is_evaluated_again) for key, item in value.items()}
    return value


def _fill_text(text: str, context: Context, is_evaluated_again: bool) -> str:
    try:
        parts = parse_template(text)
        if not any(isinstance(part, Hole) and _USE.search(part.source) for part in parts):
            return text
        texts = [_fill_part(part, context) for part in parts]
    except ExpressionError:
        return text
    if not is_evaluated_again:
        return "".join(texts)
    kept = [isinstance(part, Hole) and not _USE.search(part.source) for part in parts]
    return "".join(each if keep else escape(each) for each, keep in zip(texts, kept, strict=True))


def _fill_part(part: str | Hole, context: Context) -> str:
    if isinstance(part, str) or not _USE.search(part.source):
        return part if isinstance(part, str) else part.source
    return str(reveal(expand_text(part.source, context)))
