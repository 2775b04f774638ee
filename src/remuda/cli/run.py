"""`remuda run`: its options and its help. `remuda.localrun.command` runs the pipeline."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from remuda.cli.options import NO_PIPELINE_ARGUMENTS, Folder, Isolate, Output, PipelineArguments, repeatable
from remuda.localrun import command
from remuda.localrun.options import RunOptions


def _switch(about: str) -> Parameter:
    return Parameter(negative=(), help=about)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class RunArguments(RunOptions):
    """`RunOptions` with the help text of each option for the command line."""

    job: Annotated[tuple[str, ...], repeatable("--job", "Only this job, with what it needs.")] = ()
    stage: Annotated[tuple[str, ...], repeatable("--stage", "Only the jobs of this stage, with what they need.")] = ()
    no_needs: Annotated[bool, _switch("Chosen jobs without what they need.")] = False
    list_only: Annotated[bool, Parameter(name="--list", negative=(), help="Say which jobs would run, and stop.")] = (
        False
    )
    watch: Annotated[bool, _switch("Run again whenever a file changes; Ctrl-C ends it.")] = False
    manual: Annotated[tuple[str, ...], repeatable("--manual", "Start this manual job when its turn comes.")] = ()
    play_manual: Annotated[bool, _switch("Start all manual jobs.")] = False
    jobs: Annotated[int | None, Parameter(help="Jobs at the same time [default: the number of cores, at least 4].")] = (
        None
    )
    output: Output = "text"
    logs: Annotated[bool, _switch("Show the whole log of every job at the end, not only where one failed.")] = False
    artifacts: Annotated[
        Path | None, Parameter(help="Put the artifacts and reports of all jobs into DIR/<job name>.")
    ] = None
    no_cache: Annotated[bool, _switch("Begin with empty caches, and keep none.")] = False
    cache_dir: Annotated[
        Path | None, Parameter(help="Where caches are kept [default: a folder for the project in the user's cache].")
    ] = None
    data: Annotated[Path | None, Parameter(help="Keep everything in this folder; it may be used again.")] = None
    keep: Annotated[
        bool, _switch("Keep the temporary data folder and the working directories of failed jobs, and say where.")
    ] = False
    shell_on_failure: Annotated[bool, _switch("Open a shell where the first failed job ran, with its variables.")] = (
        False
    )
    isolation: Isolate = "auto"


_NO_RUN_ARGUMENTS = RunArguments()


def run(
    path: Folder = Path("."),
    /,
    *names: Annotated[str, Parameter(help="Only these jobs, as with --job.")],
    pipeline: PipelineArguments = NO_PIPELINE_ARGUMENTS,
    options: RunArguments = _NO_RUN_ARGUMENTS,
) -> int:
    """Run a repository's pipeline here and now.

    Starts a cell, a runner manager and an agent for this run only, brings a snapshot of PATH into it and follows the
    pipeline. The snapshot holds uncommitted changes and leaves out what git ignores; the repository itself is not
    touched. The pipeline is the one that a push of it would get. Jobs run on this machine as your user, with your
    programs, but they do not see the files of the run itself, such as its administrator's token (see --isolation).

    Ctrl-C cancels the pipeline and waits for its jobs to end; a second one leaves at once.

    Try:

        remuda run
        remuda run --list
        remuda run --job test --variable LEVEL=debug
        remuda run --stage build --no-needs
        remuda run --event merge_request --watch
        remuda run examples/hello --jobs 4 --artifacts out
        remuda run --output json | python3 -m json.tool

    Exit codes: 0 the pipeline succeeded, 1 it failed, 2 bad input, 130 interrupted.
    """
    return command.run(path, pipeline, replace(options, job=(*names, *options.job)))
