"""Replaces `${{ job.inputs.name }}` in the definition of a job by the values of its inputs: those that a user gave when
starting or retrying the job, else the defaults. All runners then get plain texts. Expressions are those of the step
language; one that names no input of the job stays as written, because the runner may understand it, and so does one
that cannot be evaluated."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.cell.errors import InvalidError
from remuda.pipeline import JobSpec
from remuda.pipeline.spec import Artifacts
from remuda.steps.language.errors import ExpressionError
from remuda.steps.language.escaping import OPENER, escape
from remuda.steps.language.evaluate import Context, expand_text, reveal
from remuda.steps.language.template import Hole, parse_template

MAX_ADDED = 1024 * 1024
"""How many characters the inputs of a job may add to its definition."""

_USE = re.compile(r"(?<![\w.])job\.inputs\b", re.ASCII)
_FIELDS = ("script", "after_script", "cache", "image", "services")


def fill_inputs(spec: JobSpec, given: Mapping[str, Any]) -> JobSpec:
    """Return the definition of a job with the values of its inputs. A job without inputs is returned unchanged. Raises
    InvalidError if the values are inserted so often that they add more than `MAX_ADDED` characters."""
    if not spec.inputs:
        return spec
    filler = _Filler({name: given.get(name, declared.default) for name, declared in spec.inputs.items()})
    fields = {name: filler.fill(getattr(spec, name)) for name in _FIELDS}
    if spec.artifacts is not None:
        fields["artifacts"] = msgspec.convert(filler.fill(msgspec.to_builtins(spec.artifacts)), Artifacts)
    # The steps of `run` are evaluated again by the runner, so what is not replaced must stay escaped.
    fields["run"] = filler.fill(spec.run, is_evaluated_again=True)
    return msgspec.structs.replace(spec, **fields)


class _Filler:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._context = Context(vars={"inputs": values})
        self._added = 0

    def fill(self, value: Any, *, is_evaluated_again: bool = False) -> Any:
        match value:
            case str():
                return self._text(value, is_evaluated_again) if OPENER in value else value
            case list():
                return [self.fill(item, is_evaluated_again=is_evaluated_again) for item in value]
            case tuple():
                return tuple(self.fill(item, is_evaluated_again=is_evaluated_again) for item in value)
            case dict():
                return {key: self.fill(item, is_evaluated_again=is_evaluated_again) for key, item in value.items()}
        return value

    def _text(self, text: str, is_evaluated_again: bool) -> str:
        try:
            parts = parse_template(text)
            if not any(_is_replaced(part) for part in parts):
                return text
            texts = [self._part(part, is_evaluated_again) for part in parts]
        except ExpressionError:
            return text
        return "".join(texts)

    def _part(self, part: str | Hole, is_evaluated_again: bool) -> str:
        if isinstance(part, Hole) and not _is_replaced(part):
            return part.source
        text = part if isinstance(part, str) else self._evaluate(part)
        return escape(text) if is_evaluated_again else text

    def _evaluate(self, hole: Hole) -> str:
        text = str(reveal(expand_text(hole.source, self._context)))
        self._added += len(text)
        if self._added > MAX_ADDED:
            raise InvalidError(f"the inputs of the job add more than {MAX_ADDED} characters; use shorter values")
        return text


def _is_replaced(part: str | Hole) -> bool:
    """True for an expression that uses an input of the job."""
    return isinstance(part, Hole) and _USE.search(part.source) is not None
