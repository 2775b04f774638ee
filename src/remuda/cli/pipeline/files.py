"""`remuda pipeline lint`, `show` and `graph`: compile a pipeline file and print the result. They fetch nothing unless
the user permits it. For a number, `show` shows a pipeline of a cell."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress
from remuda.cli.options import NO_PIPELINE_ARGUMENTS, OUTPUT, Folder, Output, PipelineArguments
from remuda.lib.exits import BadInputError, Exit
from remuda.localrun.compilation import PipelineFile, prepare_with_settings

if TYPE_CHECKING:
    from remuda.pipeline import Mistake, Pipeline, PipelineError

VERSION = 1
"""Version of lint's JSON document."""


def lint(
    path: Folder = Path("."), /, *, options: PipelineArguments = NO_PIPELINE_ARGUMENTS, output: Output = "text"
) -> int:
    """Check a pipeline file.

    Prints all mistakes and warnings, each with file, line and column, the text of the line, and what to do. For a
    correct file, prints the number of jobs, or why there would be no pipeline.

    Try:

        remuda pipeline lint
        remuda pipeline lint --event merge_request --variable DEPLOY=yes
        remuda pipeline lint ci/jobs.yml
        remuda pipeline lint --output json | python3 -m json.tool

    Exit codes: 0 the file is correct, 2 the file or the options have mistakes.
    """
    from remuda.localrun.render.excerpts import describe_mistakes
    from remuda.localrun.render.pipeline_overview import headline
    from remuda.localrun.render.words import plural
    from remuda.pipeline import PipelineError
    from remuda.pipeline.errors import printable

    file = prepare_with_settings(path, options)
    pipeline: Pipeline | None = None
    mistakes: PipelineError | None = None
    try:
        pipeline = file.compile()
        warnings = pipeline.warnings
    except PipelineError as error:
        mistakes, warnings = error, error.warnings
    if output == "json":
        print(json.dumps(_verdict(file, pipeline, mistakes, warnings), indent=2))
        return Exit.SUCCESS if mistakes is None else Exit.BAD_INPUT
    for line in describe_mistakes(warnings, file.texts, severity="warning"):
        print(line)
    if mistakes is not None:
        print(*describe_mistakes(mistakes.errors, file.texts), sep="\n")
        files = {mistake.file for mistake in mistakes.errors}
        where = f" in {len(files)} files" if len(files) > 1 else ""
        print(f"\n{plural(len(mistakes.errors), 'mistake')}{where}")
    elif pipeline is not None:
        remark = f", with {plural(len(warnings), 'warning')}" if warnings else ""
        print(f"{printable(file.name, 4096)} is good{remark}. For {file.occasion}: {headline(pipeline)}")
    return Exit.SUCCESS if mistakes is None else Exit.BAD_INPUT


def show(
    path: Annotated[
        # Not a Path, which makes `7` of `./7`.
        str,
        Parameter(help="A repository, a folder with a pipeline file, the file, or the number of a pipeline of a cell."),
    ] = ".",
    /,
    *,
    options: PipelineArguments = NO_PIPELINE_ARGUMENTS,
    job: Annotated[
        str | None,
        Parameter(help="Show only this job, with every value that is not the default, or why it is left out."),
    ] = None,
    output: Annotated[
        Literal["text", "json", "yaml"],
        Parameter(
            name=OUTPUT,
            help="Format of the output. yaml is the file with everything that it includes, extends and references.",
        ),
    ] = "text",
    cell: CellAddress = USUAL_CELL,
) -> None:
    """Show the pipeline of a file, or a pipeline of a cell.

    For a number, shows this pipeline of the cell: its status and its jobs. (`./7` is a folder named 7.)

    For a file, prints the jobs of each stage with when they start, what they need and which rule added them, and the
    jobs that are left out, with the rule.

    Try:

        remuda pipeline show
        remuda pipeline show --event merge_request
        remuda pipeline show --job deploy
        remuda pipeline show --output yaml
        remuda pipeline show 7
    """
    if path.isascii() and path.isdigit():
        _show_of_cell(int(path), cell, options, job, output)
        return
    import msgspec

    from remuda.localrun.render import pipeline_overview

    if job is not None and output == "yaml":
        raise BadInputError("--job: the file is shown as a whole; leave out --job, or --output yaml")
    file = prepare_with_settings(Path(path), options)
    if output == "yaml":
        with file.excerpts():
            print(file.merge_yaml(), end="")
        return
    pipeline = file.compile_and_warn()
    spec = pipeline_overview.find(pipeline, job) if job is not None else None
    if output == "json":
        value = pipeline if spec is None else spec
        print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    elif spec is not None:
        print(*pipeline_overview.details(spec, file.name), sep="\n")
    else:
        print(f"For {file.occasion}: {pipeline_overview.headline(pipeline)}")
        for line in ("", *pipeline_overview.table(pipeline, file.name)):
            print(line)


def _show_of_cell(number: int, cell: CellAddress, options: PipelineArguments, job: str | None, output: str) -> None:
    from remuda.cli.pipeline.cell import show_pipeline

    if options != NO_PIPELINE_ARGUMENTS or job is not None or output == "yaml":
        raise BadInputError(
            f"{number} is a pipeline of a cell; --output yaml, --job and the options about pipeline files are for "
            f"files (a folder with this name is ./{number})"
        )
    show_pipeline(number, cell, output)


def graph(
    path: Folder = Path("."),
    /,
    *,
    options: PipelineArguments = NO_PIPELINE_ARGUMENTS,
    by: Annotated[
        Literal["stage", "needs"], Parameter(help="Columns by stage, or by the longest chain of jobs before a job.")
    ] = "stage",
    all_parts: Annotated[
        bool,
        Parameter(negative=(), help="Draw every part of a parallel job, also in a pipeline with more than 60 jobs."),
    ] = False,
    output: Annotated[
        Literal["text", "json", "svg", "dot"],
        Parameter(name=OUTPUT, help="Format of the output. svg is a picture, dot is for Graphviz."),
    ] = "text",
) -> None:
    """Draw which job waits for which.

    Arrows are needs. A job without `needs` waits for all jobs of earlier stages; this is not drawn.

    Try:

        remuda pipeline graph
        remuda pipeline graph --by needs
        remuda pipeline graph --output svg > pipeline.svg
        remuda pipeline graph --output dot | dot -Tpng > pipeline.png
    """
    from remuda.cli.render import graph_text
    from remuda.cli.render.graph import document, graph_of
    from remuda.cli.render.svg import svg

    file = prepare_with_settings(path, options)
    pipeline = file.compile_and_warn()
    if output == "json":
        print(json.dumps(document(pipeline), indent=2))
        return
    job_graph = graph_of(pipeline, all_parts=True if all_parts else None)
    if output == "svg":
        print(svg(job_graph, by=by, title=f"Pipeline for {file.occasion}"), end="")
    else:
        print(*(graph_text.tree(job_graph, by) if output == "text" else graph_text.dot(job_graph)), sep="\n")


def _verdict(
    file: PipelineFile,
    pipeline: "Pipeline | None",
    mistakes: "PipelineError | None",
    warnings: "tuple[Mistake, ...]",
) -> dict[str, object]:
    import msgspec

    jobs = pipeline.jobs if pipeline else ()
    return {
        "version": VERSION,
        "valid": mistakes is None,
        "file": file.name,
        "source": file.facts.source,
        "ref": file.facts.ref,
        "errors": msgspec.to_builtins(mistakes.errors) if mistakes else [],
        "warnings": msgspec.to_builtins(warnings),
        "skipped": pipeline.skipped if pipeline else None,
        "jobs": len(jobs),
        "stages": list(dict.fromkeys(job.stage for job in sorted(jobs, key=lambda job: job.stage_index))),
        "left_out": msgspec.to_builtins(pipeline.left_out) if pipeline else [],
    }
