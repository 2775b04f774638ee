"""`remuda pipeline`: look at a pipeline file without running it.

Decided here: what each command prints and how it ends. The file is compiled as `remuda run` and a cell would do it,
for the circumstances that the options give; nothing is run, and nothing fetched unless an option allows it.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from remuda.cli.exits import BadInputError, Exit
from remuda.cli.options import Output
from remuda.localrun.compilation import Folder, PipelineOptions, Ready, prepare

if TYPE_CHECKING:
    from remuda.pipeline import Pipeline, PipelineError

VERSION = 1
"""Version of the meaning of lint's JSON document."""

_DEFAULTS = PipelineOptions()


def lint(path: Folder = Path("."), /, *, options: PipelineOptions = _DEFAULTS, output: Output = "text") -> int:
    """Check a pipeline file.

    Shows all mistakes at once, each with its place, the line and what to do. For a good file it says how many jobs
    there would be, and if there would be no pipeline, why.

    Try:

        remuda pipeline lint
        remuda pipeline lint --event merge_request --variable DEPLOY=yes
        remuda pipeline lint ci/jobs.yml
        remuda pipeline lint --output json | python3 -m json.tool

    Exit codes: 0 the file is good, 2 it has mistakes, or the options have.
    """
    from remuda.cli.render.excerpts import described
    from remuda.cli.render.pipeline_overview import headline
    from remuda.localrun.report import counted
    from remuda.pipeline import PipelineError
    from remuda.pipeline.errors import printable

    ready = prepare(path, options)
    pipeline: Pipeline | None = None
    mistakes: PipelineError | None = None
    try:
        pipeline = ready.compile()
    except PipelineError as error:
        mistakes = error
    if output == "json":
        print(json.dumps(_verdict(ready, pipeline, mistakes), indent=2))
    elif mistakes is not None:
        print(*described(mistakes.errors, ready.texts), sep="\n")
        files = {mistake.file for mistake in mistakes.errors}
        where = f" in {len(files)} files" if len(files) > 1 else ""
        print(f"\n{counted(len(mistakes.errors), 'mistake')}{where}")
    elif pipeline is not None:
        print(f"{printable(ready.file, 4096)} is good. For {ready.occasion}: {headline(pipeline)}")
    return Exit.SUCCESS if mistakes is None else Exit.BAD_INPUT


def show(
    path: Folder = Path("."),
    /,
    *,
    options: PipelineOptions = _DEFAULTS,
    job: Annotated[str | None, Parameter(help="Only this job, in full, or why it is left out.")] = None,
    output: Annotated[
        Literal["text", "json", "yaml"],
        Parameter(help="What to print: text for people, json for programs, yaml the file with all it includes."),
    ] = "text",
) -> None:
    """Show the pipeline that a file makes.

    The jobs stage by stage with when they start, what they need and which rule took them in, and the jobs that are
    left out, with the rule that did it.

    Try:

        remuda pipeline show
        remuda pipeline show --event merge_request
        remuda pipeline show --job deploy
        remuda pipeline show --output yaml
    """
    import msgspec

    from remuda.cli.render import pipeline_overview

    if job is not None and output == "yaml":
        raise BadInputError("--job: the file is shown as a whole; leave out --job, or --output yaml")
    ready = prepare(path, options)
    if output == "yaml":
        with ready.excerpts():
            print(ready.merged(), end="")
        return
    with ready.excerpts():
        pipeline = ready.compile()
    found = pipeline_overview.find(pipeline, job) if job is not None else None
    if output == "json":
        shown = pipeline if found is None else found
        print(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode())
    elif found is not None:
        print(*pipeline_overview.details(found, ready.file), sep="\n")
    else:
        print(f"For {ready.occasion}: {pipeline_overview.headline(pipeline)}")
        for line in ("", *pipeline_overview.table(pipeline, ready.file)):
            print(line)


def graph(
    path: Folder = Path("."),
    /,
    *,
    options: PipelineOptions = _DEFAULTS,
    by: Annotated[
        Literal["stage", "needs"], Parameter(help="Columns by stage, or by how many jobs stand before one in a row.")
    ] = "stage",
    all_parts: Annotated[
        bool, Parameter(negative=(), help="Every part of a parallel job on its own, in a large pipeline too.")
    ] = False,
    output: Annotated[
        Literal["text", "json", "svg", "dot"],
        Parameter(help="What to print: text for people, json for programs, svg a picture, dot for Graphviz."),
    ] = "text",
) -> None:
    """Draw who waits for whom.

    Arrows are needs. A job without `needs` waits for all jobs of earlier stages; no arrow says so.

    Try:

        remuda pipeline graph
        remuda pipeline graph --by needs
        remuda pipeline graph --output svg > pipeline.svg
        remuda pipeline graph --output dot | dot -Tpng > pipeline.png
    """
    from remuda.cli.render import graph_text
    from remuda.cli.render.graph import document, graph_of
    from remuda.cli.render.svg import svg

    ready = prepare(path, options)
    with ready.excerpts():
        pipeline = ready.compile()
    if output == "json":
        print(json.dumps(document(pipeline), indent=2))
        return
    drawn = graph_of(pipeline, all_parts=True if all_parts else None)
    if output == "svg":
        print(svg(drawn, by=by, title=f"Pipeline for {ready.occasion}"), end="")
    else:
        print(*(graph_text.tree(drawn, by) if output == "text" else graph_text.dot(drawn)), sep="\n")


def _verdict(ready: Ready, pipeline: "Pipeline | None", mistakes: "PipelineError | None") -> dict[str, object]:
    """What lint found, for programs."""
    import msgspec

    jobs = pipeline.jobs if pipeline else ()
    return {
        "version": VERSION,
        "valid": mistakes is None,
        "file": ready.file,
        "source": ready.facts.source,
        "ref": ready.facts.ref,
        "errors": msgspec.to_builtins(mistakes.errors) if mistakes else [],
        "skipped": pipeline.skipped if pipeline else None,
        "jobs": len(jobs),
        "stages": list(dict.fromkeys(job.stage for job in sorted(jobs, key=lambda job: job.stage_index))),
        "left_out": msgspec.to_builtins(pipeline.left_out) if pipeline else [],
    }
