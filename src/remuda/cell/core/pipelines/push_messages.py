"""Writes the answer to a push, which git shows its user as `remote:` lines: the pipeline of each ref with its first
jobs, its warnings, and jobs that no runner takes; all mistakes of a broken pipeline file; or why there is no pipeline.

git colors a line that begins with `error`, `warning` or `hint`. Invariants: the text has a limited length, and no
character of a ref, a file or an option reaches the terminal of the user unescaped if it is not printable."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from remuda.cell.core.pipelines.creation import merge_request_iid
from remuda.cell.core.pipelines.push_options import why_ignored
from remuda.cell.values.pushes import PushOutcome
from remuda.model.job import JobState, PipelineId
from remuda.pipeline.errors import printable

WIDTH = 72
"""Columns of a line: git puts `remote: ` before it, and a terminal has 80."""
SHOWN_REFS = 20
SHOWN_MISTAKES = 50
"""How many mistakes, and how many warnings, of a file are shown."""
SHOWN_NAMES = 5
SHOWN_CHARACTERS = 600
"""Of one mistake, reason or option; the rest of the text is cut off."""
_WAITS_FOR_NOBODY = frozenset({JobState.PENDING, JobState.LEASED, JobState.RUNNING})


class PushAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer to a push is written from."""

    project: str
    """The path of the project."""
    url: str
    """The address of the cell."""
    outcomes: Sequence[PushOutcome] = ()
    unfinished: Sequence[str] = ()
    """Refs whose pipelines are not created yet."""
    missing_runners: Mapping[PipelineId, Sequence[str]] = {}
    """For jobs of new pipelines that no runner can take now: which, and what is missing."""


def write_answer(answer: PushAnswer) -> str:
    """Return the text for the user, with a line feed after each line; empty if there is nothing to say."""
    lines: list[str] = []
    with_pipeline = [outcome for outcome in answer.outcomes if outcome.pipeline is not None]
    for outcome in with_pipeline[:SHOWN_REFS]:
        lines += ["", *_describe_pipeline(answer, outcome)]
    if (more := len(with_pipeline) - SHOWN_REFS) > 0:
        lines += ["", *_wrap(f"... and {_count(more, 'more pipeline')}; see: {_list_command(answer)}")]
    lines += _describe_rest(answer)
    return "".join(f"{line}\n" for line in [*lines, ""]) if lines else ""


def _describe_pipeline(answer: PushAnswer, outcome: PushOutcome) -> Iterator[str]:
    pipeline = outcome.pipeline
    assert pipeline is not None
    title = f"ipeline {pipeline.id} of {_name(outcome.ref)}"
    if outcome.mistakes:
        count = _count(len(outcome.mistakes), "mistake")
        yield from _wrap(f"error: p{title} failed: {count} in {_clean(outcome.file)}")
        for mistake in outcome.mistakes[:SHOWN_MISTAKES]:
            yield from _wrap(_clean(str(mistake)), indent="  ")
        if (more := len(outcome.mistakes) - SHOWN_MISTAKES) > 0:
            text = f"... and {_count(more, 'more mistake')}; see all of them: remuda pipeline lint"
            yield from _wrap(text, indent="  ")
    elif pipeline.status == "failed":
        yield from _wrap(f"error: p{title} failed: {_clean(outcome.reason)}")
    elif pipeline.status == "skipped" and outcome.reason:
        yield from _wrap(f"P{title} is skipped: {outcome.reason}")
    else:
        yield from _wrap(f"P{title}: {_describe_jobs(outcome)}")
    yield f"  {answer.url.rstrip('/')}/{answer.project}/-/pipelines/{pipeline.id}"
    yield from _warnings(outcome)
    for text in answer.missing_runners.get(pipeline.id, ()):
        yield from _wrap(f"warning: {_clean(text)}")


def _warnings(outcome: PushOutcome) -> Iterator[str]:
    for warning in outcome.warnings[:SHOWN_MISTAKES]:
        yield from _wrap(f"warning: {_clean(str(warning))}")
    for option in outcome.ignored_options[:SHOWN_NAMES]:
        yield from _wrap(f"warning: push option {_clean(option, 100)} has no effect: {_clean(why_ignored(option))}")


def _describe_jobs(outcome: PushOutcome) -> str:
    jobs = [job for job in outcome.jobs if not job.retried]
    text = _count(len(jobs), "job")
    first = [_clean(job.name, 60) for job in jobs if job.state in _WAITS_FOR_NOBODY]
    if first:
        return f"{text}, first {join_names(first)}"
    manual = [_clean(job.name, 60) for job in jobs if job.state is JobState.MANUAL]
    return f"{text}; start by hand: {join_names(manual)}" if manual else text


def _describe_rest(answer: PushAnswer) -> Iterator[str]:
    """Yield the lines about refs without a pipeline, those with the same reason together."""
    refs: dict[str, list[PushOutcome]] = {}
    for outcome in answer.outcomes:
        if outcome.pipeline is None and outcome.reason:
            refs.setdefault(outcome.reason, []).append(outcome)
    if refs:
        yield ""
    for reason, outcomes in list(refs.items())[:SHOWN_REFS]:
        names = join_names([_name(outcome.ref) for outcome in outcomes])
        yield from _wrap(f"No pipeline for {names}: {_clean(reason)}")
        left_out = outcomes[0].left_out
        for job in left_out[:SHOWN_NAMES]:
            yield from _wrap(f"{_clean(job.name, 100)}: {_clean(job.reason)}", indent="  ")
        if len(left_out) > SHOWN_NAMES:
            yield f"  ... and {len(left_out) - SHOWN_NAMES} more"
        yield from _warnings(outcomes[0])
    if answer.unfinished:
        names = join_names([_name(ref) for ref in answer.unfinished])
        pipelines, what = ("pipelines", "are") if len(answer.unfinished) > 1 else ("pipeline", "is")
        yield ""
        yield from _wrap(f"The {pipelines} of {names} {what} still being created; that goes on without you. See later:")
        yield f"  {_list_command(answer)}"


def join_names(names: Sequence[str]) -> str:
    """Return names as text: `a`, `a and b`, `a, b and c`. After `SHOWN_NAMES` only the number of the others."""
    shown = [*names[:SHOWN_NAMES]]
    if len(names) > SHOWN_NAMES:
        shown.append(f"{len(names) - SHOWN_NAMES} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _list_command(answer: PushAnswer) -> str:
    return f"remuda pipeline list --project {answer.project}"


def _name(ref: str) -> str:
    """Return a ref as in the user's words, such as `main`, `tag v1`, `merge request !7`."""
    iid = merge_request_iid(ref)
    if iid is not None:
        return f"merge request !{iid}"
    if ref.startswith("refs/tags/"):
        return _clean(f"tag {ref.removeprefix('refs/tags/')}", 100)
    return _clean(ref.removeprefix("refs/heads/"), 100)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _clean(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    return printable(text, limit)


def _wrap(text: str, indent: str = "") -> list[str]:
    """Break the text into lines of at most `WIDTH` columns; a longer word, such as a path, stays whole."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
