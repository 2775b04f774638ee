"""`remuda run`: its options and help text. `remuda.localrun.command` runs the pipeline."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from remuda.cli.options import (
    NO_PIPELINE_ARGUMENTS,
    Containers,
    DefaultImage,
    Isolate,
    NoContainers,
    Output,
    PipelineArguments,
    check_containers,
    repeatable,
)
from remuda.localrun import command
from remuda.localrun.options import DEFAULT_IMAGE, RunOptions


def _switch(about: str) -> Parameter:
    return Parameter(negative=(), help=about)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class RunArguments(RunOptions):
    """The options about running a pipeline (`RunOptions`) with their help texts, as one parameter of `remuda run`."""

    job: Annotated[
        tuple[str, ...],
        repeatable(
            "--job",
            "Run only this job and the jobs that it needs. The name of a parallel job means all its "
            "parts. A chosen job runs even if it is manual or delayed.",
        ),
    ] = ()
    stage: Annotated[
        tuple[str, ...], repeatable("--stage", "Run only the jobs of this stage and the jobs that they need.")
    ] = ()
    no_needs: Annotated[bool, _switch("Run the chosen jobs without the jobs that they need.")] = False
    list_only: Annotated[
        bool,
        Parameter(
            name="--list",
            negative=(),
            help="List the jobs that would run and the jobs that are left out, with the reason. Start nothing.",
        ),
    ] = False
    watch: Annotated[bool, _switch("Run again whenever a file changes that git does not ignore. Ctrl-C ends it.")] = (
        False
    )
    manual: Annotated[tuple[str, ...], repeatable("--manual", "Start this manual job when it is ready.")] = ()
    play_manual: Annotated[bool, _switch("Start all manual jobs when they are ready.")] = False
    jobs: Annotated[
        int | None, Parameter(help="Number of jobs at the same time [default: the number of cores, at least 4].")
    ] = None
    output: Output = "text"
    follow: Annotated[
        bool,
        Parameter(
            name=("--follow", "-f"),
            negative=(),
            help="Print the logs of all jobs while they run, instead of a tree. Without a terminal, and with one job, "
            "that is always so.",
        ),
    ] = False
    logs: Annotated[
        bool, _switch("Print the whole log of every job at the end, not only the last 30 lines of failed jobs.")
    ] = False
    artifacts: Annotated[
        Path | None,
        Parameter(
            help="Unpack the artifacts of all jobs into DIR/<job name>/, and reports into DIR/<job "
            "name>/reports/. A / in the name becomes _."
        ),
    ] = None
    no_cache: Annotated[bool, _switch("Start with empty caches, and do not keep them.")] = False
    cache_dir: Annotated[
        Path | None,
        Parameter(
            help="Folder in which caches are kept for later runs [default: a folder of the project in the "
            "user's cache folder]."
        ),
    ] = None
    data: Annotated[Path | None, Parameter(help="Keep all data in this folder. A later run can use it again.")] = None
    keep: Annotated[
        bool,
        _switch(
            "Keep the temporary data folder and the working directories of failed jobs, and print "
            "where they are and how to open a shell there."
        ),
    ] = False
    shell_on_failure: Annotated[
        bool,
        _switch(
            "At the end, open $SHELL in the working directory of the first failed job, with its "
            "variables. Jobs that may fail come last. Without a terminal, print how to get a shell."
        ),
    ] = False
    isolation: Isolate = "auto"
    containers: Containers = "auto"
    no_containers: NoContainers = False
    image: DefaultImage = DEFAULT_IMAGE


_NO_RUN_ARGUMENTS = RunArguments()


def run(
    path: Annotated[
        str,
        Parameter(help="The repository, any folder with a pipeline file, the pipeline file, or a job as with --job."),
    ] = ".",
    /,
    *names: Annotated[str, Parameter(help="Run only these jobs, as with --job.")],
    pipeline: PipelineArguments = NO_PIPELINE_ARGUMENTS,
    options: RunArguments = _NO_RUN_ARGUMENTS,
) -> int:
    """Run the pipeline of a repository on this machine.

    Starts a cell, a runner manager and an agent for this run only, pushes a snapshot of PATH to the cell and follows
    the pipeline. The snapshot contains uncommitted changes, but no files that git ignores. The repository itself is not
    changed. The pipeline is the one that a push of the snapshot would get.

    Jobs that name an image or services run in containers of Docker or Podman. All other jobs run on this machine as
    your user, with your programs (see --containers). Jobs do not see the files of the run itself, such as its
    administrator's token (see --isolation).

    Each option below is also a key of settings files, without its dashes: `jobs = 4`, `logs = true`, `job = ["test"]`.
    The command line wins over .remuda.toml in the top folder of the repository, which wins over your own file
    ~/.config/remuda/settings.toml. A repository can come from anybody, so some keys are for your own file only. A
    switch from a file is turned off with --logs=false. `remuda docs run-settings` lists the keys.

    Ctrl-C cancels the pipeline and waits up to 30 seconds for its jobs to end. A second Ctrl-C exits at once.

    Try:

        remuda run
        remuda run test
        remuda run --list
        remuda run --job test --variable LEVEL=debug
        remuda run --stage build --no-needs
        remuda run --event merge_request --watch
        remuda run examples/hello --jobs 4 --artifacts out
        remuda run --output json | python3 -m json.tool

    Exit codes: 0 the pipeline succeeded, 1 it failed, 2 bad input, 130 interrupted.
    """
    check_containers(options.containers, no_containers=options.no_containers)
    if options.no_containers:
        options = options.change(containers="never")
    return command.run_words(path, names, pipeline, options)
