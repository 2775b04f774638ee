"""The implementation of `remuda run`, after its options are parsed: checks them, compiles the pipeline file, and runs
it in a data folder, temporary unless the options say otherwise; with `--watch` again after every change of a file.
Invariant: however a run ends, except by SIGKILL, it leaves no temporary file, unless `--keep` says so."""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.lib import event_loop
from remuda.lib.exits import BadInputError, CommandError, Exit, InterruptedRunError
from remuda.localrun.compilation import PipelineFile, find_project, prepare_with_settings
from remuda.localrun.containers import ContainerWish
from remuda.localrun.data_folder import platform_folder, usable_folder
from remuda.localrun.options import PipelineOptions, RunOptions
from remuda.localrun.settings.files import load_settings
from remuda.localrun.startup import end, listen_to_signals, manager_data, start, start_cell

if TYPE_CHECKING:
    from remuda.localrun.pipeline_run import RunSpec
    from remuda.pipeline import Pipeline

_PIPELINE_DEFAULTS = PipelineOptions()
_RUN_DEFAULTS = RunOptions()
LEAST_AT_ONCE = 4
"""Jobs wait for disks and networks more than they compute, so a machine with two cores can run more than two."""


def run_words(word: str, names: tuple[str, ...], pipeline: PipelineOptions, options: RunOptions) -> int:
    """Run what the words of the command line mean, as `run`. `word`: a folder, a pipeline file or a job; `names`: jobs
    after it."""
    from remuda.localrun.job_words import split_words

    path, jobs = split_words(word, names, pipeline)
    if jobs:
        options = options.change(job=(*jobs, *options.job))
    return run(path, pipeline, options, words=jobs[: len(jobs) - len(names)])


def run(
    path: Path = Path("."),
    pipeline: PipelineOptions = _PIPELINE_DEFAULTS,
    options: RunOptions = _RUN_DEFAULTS,
    *,
    words: tuple[str, ...] = (),
) -> int:
    """Run the pipeline of a folder or file and return the exit code. Options that the command line did not set have the
    values of settings files, which are read again for each run of `--watch`. `words`: names of jobs that the user could
    have meant as folders. Raises BadInputError for invalid options."""
    given_pipeline, given_options = pipeline, options
    settings = load_settings(path)
    pipeline, options = settings.apply(given_pipeline), settings.apply(given_options)
    if options.jobs is not None and options.jobs < 1:
        raise BadInputError(f"--jobs {options.jobs}: must be at least 1")
    if options.artifacts is not None:
        usable_folder(options.artifacts, "--artifacts")
    path = find_project(settings.find_path(given_pipeline), pipeline.file)

    def run_once() -> int:
        current = load_settings(path).apply(given_options)
        file = prepare_with_settings(path, given_pipeline)
        spec = resolve(file, current, words)
        return Exit.SUCCESS if spec is None else _run_spec(spec, current)

    if options.watch and not options.list_only:
        return _run_on_changes(path if path.is_dir() else path.parent, run_once)
    return run_once()


def _run_on_changes(folder: Path, run_once: Callable[[], int]) -> int:
    """Call `run_once` now and after every change in `folder`, print its errors, until interrupted; return that code."""
    from remuda.localrun.sources.file_watch import look, wait_for_change

    while True:
        before = look(folder)
        try:
            if run_once() == Exit.INTERRUPTED:
                return Exit.INTERRUPTED
        except InterruptedRunError:  # at its start, before there was a pipeline
            raise
        except CommandError as error:
            print(f"remuda: {error}", file=sys.stderr)
        listen_to_signals()
        print(f"\nwaiting for changes in {folder.resolve()}; Ctrl-C ends it", file=sys.stderr)
        changed = wait_for_change(folder, before)
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        print(f"changed: {', '.join(changed[:3])}{more}", file=sys.stderr)


def resolve(file: PipelineFile, options: RunOptions, words: tuple[str, ...] = ()) -> "RunSpec | None":
    """Compile the file, check the options, and return what to run. Returns None after printing an overview if nothing
    is to run: with `--list`, or if the rules create no pipeline. `words`: jobs that could be folders, too."""
    from remuda.localrun.pipeline_run import RunSpec
    from remuda.localrun.upload import Choice
    from remuda.pipeline.job_selection import ChoiceError, choose

    file, compared = _record_compared(file)
    whole = pipeline = file.compile_and_warn()
    choice = Choice(jobs=options.job, stages=options.stage, with_needs=not options.no_needs)
    if pipeline.skipped is None:
        try:
            pipeline = choose(pipeline, jobs=choice.jobs, stages=choice.stages, with_needs=choice.with_needs)
        except ChoiceError as error:
            from remuda.localrun.job_words import suggest_folders

            raise BadInputError(f"{error}{suggest_folders(words)}; `remuda run --list` shows what there is") from None
    if options.list_only or pipeline.skipped is not None:
        listed = _with_unchosen(pipeline, whole) if options.list_only else None
        _print_overview(file, pipeline, listed, options.output)
        return None
    _check_manual(pipeline, options.manual)
    if any(job.trigger is not None and job.trigger.include for job in pipeline.jobs):
        from remuda.localrun.sources.child_pipelines import fetch_for_children

        fetch_for_children(file, pipeline)
    containers = ContainerWish(choice=options.containers, image=options.image)
    containers.check(os.environ)
    return RunSpec(
        file=file,
        pipeline=pipeline,
        compared=frozenset(compared),
        choice=choice,
        at_once=options.jobs or max(LEAST_AT_ONCE, len(os.sched_getaffinity(0))),
        output=options.output,
        shows_logs=options.logs,
        follows=options.follow,
        artifacts=options.artifacts.absolute() if options.artifacts else None,
        cache=None if options.no_cache else _cache_folder(file, options.cache_dir),
        has_own_cache=options.cache_dir is not None,
        manual=frozenset(options.manual),
        play_manual=options.play_manual,
        keeps_builds=options.keep or options.shell_on_failure,
        containers=containers,
        borrows=options.data is None and not options.keep,
    )


def _print_overview(file: PipelineFile, pipeline: "Pipeline", listed: "Pipeline | None", output: str) -> None:
    """Print how many jobs `pipeline` has, or why there is no pipeline, then the jobs of `listed` unless that is None.
    `output`: text or json."""
    import msgspec

    from remuda.localrun import report
    from remuda.localrun.render import pipeline_overview
    from remuda.localrun.view import RunView

    headline = f"For {file.occasion}: {pipeline_overview.headline(pipeline)}"
    if output == "json" and listed is None:
        print(headline, file=sys.stderr)
        nothing = RunView(pipeline_id=0, status="skipped", now=0.0, stages=())
        print(json.dumps({**report.document(report.Outcome(view=nothing)), "pipeline_id": None}, indent=2))
    elif output == "json":
        print(msgspec.json.format(msgspec.json.encode(listed), indent=2).decode())
    else:
        print(headline)
        if listed is not None:
            print("", *pipeline_overview.table(listed, file.name), sep="\n")


def _check_manual(pipeline: "Pipeline", names: tuple[str, ...]) -> None:
    """Raise BadInputError if a name of `--manual` is not the name of a job. Not checked if there are trigger jobs,
    because a downstream pipeline could have a job with the name."""
    if any(job.trigger is not None for job in pipeline.jobs):
        return
    jobs = {job.name for job in pipeline.jobs}
    for name in names:
        if name not in jobs:
            manual = ", ".join(job.name for job in pipeline.jobs if job.when == "manual") or "none"
            raise BadInputError(f"--manual {name}: this run has no such job; its manual jobs: {manual}")


def _with_unchosen(pipeline: "Pipeline", whole: "Pipeline") -> "Pipeline":
    """Copy `pipeline` (the chosen jobs), with the other jobs of `whole` added to its list of left-out jobs."""
    import msgspec

    from remuda.pipeline import LeftOut

    chosen = {job.name for job in pipeline.jobs}
    others = [
        LeftOut(name=job.name, reason="not chosen, and not needed", line=job.line, file=job.file)
        for job in whole.jobs
        if job.name not in chosen
    ]
    return msgspec.structs.replace(pipeline, left_out=(*others, *pipeline.left_out))


def _record_compared(file: PipelineFile) -> tuple[PipelineFile, set[str]]:
    """Return a copy of the file and a set, which is empty at first. When the copy is compiled, every ref that its rules
    compare with (`compare_to`) is added to the set. The commits of these refs must be uploaded to the cell, too."""
    import msgspec

    compared: set[str] = set()
    facts = file.facts

    def changed_files(ref: str | None) -> object:
        if ref is not None:
            compared.add(ref)
        return facts.changes_since(ref)

    return replace(file, facts=msgspec.structs.replace(facts, changed_files=changed_files)), compared


def _cache_folder(file: PipelineFile, folder: Path | None) -> Path:
    """Return `folder`, the value of `--cache-dir`. If it is None, return a folder in the user's cache whose name is
    derived from the project's URL, or from the path of the local folder if the project has no server."""
    if folder is not None:
        return usable_folder(folder, "--cache-dir").absolute()
    import platformdirs

    variables = file.facts.predefined
    is_local = variables.get("CI_SERVER_HOST") == "localhost"
    owner = str(file.folder) if is_local else variables.get("CI_PROJECT_URL", "")
    base = Path(platformdirs.user_cache_dir("remuda")) / "run"
    return base / hashlib.sha256(owner.encode(errors="surrogateescape")).hexdigest()[:16]


def _run_spec(spec: "RunSpec", options: RunOptions) -> int:
    from remuda.localrun import failure_shell
    from remuda.localrun.pipeline_run import run_pipeline

    listen_to_signals()
    if options.data is not None:
        platform_folder(options.data, "--data")
    workspace = start(options.data.resolve() if options.data else None, options.isolation)
    process = start_cell()
    try:
        if (warning := workspace.isolation.warning()) is not None:
            print(f"remuda: {warning}", file=sys.stderr)
        # asyncio.run waits for the threads of the loop, so none of them writes to the folder when it is removed.
        outcome = event_loop.run(run_pipeline(spec, workspace, process))
        listen_to_signals()
        if spec.keeps_builds and not outcome.interrupted:
            folder, is_kept = workspace.folder, options.keep or options.data is not None
            failure_shell.offer(
                outcome.view, folder, manager_data(folder), opens=options.shell_on_failure, is_kept=is_kept
            )
    finally:
        end(keep=options.keep)
    return outcome.exit
