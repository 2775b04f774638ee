"""`remuda run`: a repository's pipeline here and now.

Decided here: what counts as a run's input, how long its folder lasts, and when it runs again. The run itself is in
`local_run`.

Invariant: however a run ends, short of kill -9, no temporary file of it is left.
"""

import asyncio
import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from remuda.cli.exits import BadInputError, CommandError, Exit
from remuda.cli.options import Isolate, Output, platform_folder, usable_folder
from remuda.cli.parameter import Parameter
from remuda.localrun.compilation import Folder, PipelineOptions, Ready, prepare
from remuda.localrun.startup import end, listen_to_signals, manager_data, start, start_cell

if TYPE_CHECKING:
    from remuda.localrun.isolation import Wanted
    from remuda.localrun.run import Plan
    from remuda.pipeline import Pipeline

_DEFAULTS = PipelineOptions()
LEAST_AT_ONCE = 4
"""Jobs wait for disks and networks more than they compute, so a machine of two cores does well with more than two."""


def _named(name: str, about: str) -> Parameter:
    return Parameter(name=name, negative=(), show_default=False, help=f"{about} May be given several times.")


def _switch(about: str) -> Parameter:
    return Parameter(negative=(), help=about)


def run(
    path: Folder = Path("."),
    /,
    *names: Annotated[str, Parameter(help="Only these jobs, as with --job.")],
    options: PipelineOptions = _DEFAULTS,
    job: Annotated[tuple[str, ...], _named("--job", "Only this job, with what it needs.")] = (),
    stage: Annotated[tuple[str, ...], _named("--stage", "Only the jobs of this stage, with what they need.")] = (),
    no_needs: Annotated[bool, _switch("Chosen jobs without what they need.")] = False,
    list_: Annotated[bool, Parameter(name="--list", negative=(), help="Say which jobs would run, and stop.")] = False,
    watch: Annotated[bool, _switch("Run again whenever a file changes; Ctrl-C ends it.")] = False,
    manual: Annotated[tuple[str, ...], _named("--manual", "Start this manual job when its turn comes.")] = (),
    play_manual: Annotated[bool, _switch("Start all manual jobs.")] = False,
    jobs: Annotated[
        int | None, Parameter(help="Jobs at the same time [default: the number of cores, at least 4].")
    ] = None,
    output: Output = "text",
    logs: Annotated[bool, _switch("Show the whole log of every job at the end, not only where one failed.")] = False,
    artifacts: Annotated[
        Path | None, Parameter(help="Put the artifacts and reports of all jobs into DIR/<job name>.")
    ] = None,
    no_cache: Annotated[bool, _switch("Begin with empty caches, and keep none.")] = False,
    cache_dir: Annotated[
        Path | None, Parameter(help="Where caches are kept [default: a folder for the project in the user's cache].")
    ] = None,
    data: Annotated[Path | None, Parameter(help="Keep everything in this folder; it may be used again.")] = None,
    keep: Annotated[
        bool, _switch("Keep the temporary data folder and the working directories of failed jobs, and say where.")
    ] = False,
    shell_on_failure: Annotated[
        bool, _switch("Open a shell where the first failed job ran, with its variables.")
    ] = False,
    isolation: Isolate = "auto",
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
    if jobs is not None and jobs < 1:
        raise BadInputError(f"--jobs {jobs}: at least 1")
    if artifacts is not None:
        usable_folder(artifacts, "--artifacts")
    chosen = (*names, *job)
    if not path.exists() and path.parent == Path("."):
        raise BadInputError(f"{path}: there is no such folder; if it is a job, write: remuda run . {path}")

    def plan() -> "Plan | None":
        import msgspec

        ready = prepare(path, options)
        found = _planned(ready, chosen, stage, with_needs=not no_needs, shows_list=list_, output=output)
        if found is None:
            return None
        _check_manual(found.pipeline, manual)
        return msgspec.structs.replace(
            found,
            at_once=jobs or max(LEAST_AT_ONCE, len(os.sched_getaffinity(0))),
            output=output,
            shows_logs=logs,
            artifacts=artifacts.absolute() if artifacts else None,
            cache=None if no_cache else _cache_folder(ready, cache_dir),
            has_own_cache=cache_dir is not None,
            manual=frozenset(manual),
            play_manual=play_manual,
            keeps_builds=keep or shell_on_failure,
            borrows=data is None and not keep,
        )

    def once(planned: "Plan") -> int:
        return _run_once(planned, data, isolation, keep=keep, opens_shell=shell_on_failure)

    if not watch or list_:
        planned = plan()
        return Exit.SUCCESS if planned is None else once(planned)
    while True:
        from remuda.localrun.sources.file_watch import look, wait_for_change

        folder = path if path.is_dir() else path.parent
        before = look(folder)
        try:
            planned = plan()
            if planned and once(planned) == Exit.INTERRUPTED:
                return Exit.INTERRUPTED
        except CommandError as error:
            print(f"remuda: {error}", file=sys.stderr)
        listen_to_signals()
        print(f"\nwaiting for changes in {folder.resolve()}; Ctrl-C ends it", file=sys.stderr)
        changed = wait_for_change(folder, before)
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        print(f"changed: {', '.join(changed[:3])}{more}", file=sys.stderr)


def _planned(
    ready: Ready,
    jobs: tuple[str, ...],
    stages: tuple[str, ...],
    *,
    with_needs: bool,
    shows_list: bool,
    output: str = "text",
) -> "Plan | None":
    """What is to be run; None if nothing is, which is said."""
    from remuda.localrun.run import Plan
    from remuda.localrun.upload import Choice
    from remuda.pipeline.job_selection import ChoiceError, choose

    ready, compared = _noting_compared(ready)
    with ready.excerpts():
        whole = pipeline = ready.compile()
    choice = Choice(jobs=jobs, stages=stages, with_needs=with_needs)
    if pipeline.skipped is None:
        try:
            pipeline = choose(pipeline, jobs=jobs, stages=stages, with_needs=with_needs)
        except ChoiceError as error:
            raise BadInputError(f"{error}; `remuda run --list` shows what there is") from None
    if shows_list or pipeline.skipped is not None:
        _tell(ready, pipeline, _with_reasons(pipeline, whole) if shows_list else None, output)
        return None
    return Plan(ready=ready, pipeline=pipeline, compared=frozenset(compared), choice=choice, at_once=1)


def _tell(ready: Ready, pipeline: "Pipeline", listed: "Pipeline | None", output: str) -> None:
    """Which jobs there are, or why there is no pipeline, where nothing is run."""
    import msgspec

    from remuda.cli.render import pipeline_overview
    from remuda.localrun import report
    from remuda.localrun.view import RunView

    headline = f"For {ready.occasion}: {pipeline_overview.headline(pipeline)}"
    if output == "json" and listed is None:
        print(headline, file=sys.stderr)
        nothing = RunView(pipeline_id=0, status="skipped", now=0.0, stages=())
        print(json.dumps({**report.document(report.Outcome(view=nothing)), "pipeline_id": None}, indent=2))
    elif output == "json":
        print(msgspec.json.format(msgspec.json.encode(listed), indent=2).decode())
    else:
        print(headline)
        if listed is not None:
            print("", *pipeline_overview.table(listed, ready.file), sep="\n")


def _check_manual(pipeline: "Pipeline", names: tuple[str, ...]) -> None:
    """Refuse names that no job has. Where pipelines are started, the job may be in one of those."""
    if any(job.trigger is not None for job in pipeline.jobs):
        return
    known = {job.name for job in pipeline.jobs}
    for name in names:
        if name not in known:
            there = ", ".join(job.name for job in pipeline.jobs if job.when == "manual") or "none"
            raise BadInputError(f"--manual {name}: this run has no such job; its manual jobs: {there}")


def _with_reasons(pipeline: "Pipeline", whole: "Pipeline") -> "Pipeline":
    """The chosen part of a pipeline, in which the other jobs are left out because they are not chosen."""
    import msgspec

    from remuda.pipeline import LeftOut

    chosen = {job.name for job in pipeline.jobs}
    others = [
        LeftOut(name=job.name, reason="not chosen, and not needed", line=job.line, file=job.file)
        for job in whole.jobs
        if job.name not in chosen
    ]
    return msgspec.structs.replace(pipeline, left_out=(*others, *pipeline.left_out))


def _noting_compared(ready: Ready) -> tuple[Ready, set[str]]:
    """The same, and the refs that rules compare with, once it is compiled: the cell must have them too."""
    import msgspec

    compared: set[str] = set()
    facts = ready.facts

    def changed(ref: str | None) -> object:
        if ref is not None:
            compared.add(ref)
        return facts.changed(ref)

    return replace(ready, facts=msgspec.structs.replace(facts, changed_files=changed)), compared


def _cache_folder(ready: Ready, given: Path | None) -> Path:
    """The folder for caches: one for each project of a server, and for each folder that has none."""
    if given is not None:
        return usable_folder(given, "--cache-dir").absolute()
    import platformdirs

    told = ready.facts.predefined
    is_local = told.get("CI_SERVER_HOST") == "localhost"
    whose = str(ready.folder) if is_local else told.get("CI_PROJECT_URL", "")
    base = Path(platformdirs.user_cache_dir("remuda")) / "run"
    return base / hashlib.sha256(whose.encode(errors="surrogateescape")).hexdigest()[:16]


def _run_once(plan: "Plan", data: Path | None, wanted: "Wanted", *, keep: bool, opens_shell: bool) -> int:
    from remuda.localrun import failure_shell, run

    listen_to_signals()
    if data is not None:
        platform_folder(data, "--data")
    started = start(data.resolve() if data else None, wanted)
    folder, process = started.folder, start_cell()
    try:
        if (warning := started.isolation.warning()) is not None:
            print(f"remuda: {warning}", file=sys.stderr)
        # The end of the loop waits for its threads: none of them writes there any more when this is removed.
        outcome = asyncio.run(run.run(plan, started, process))
        listen_to_signals()
        if plan.keeps_builds and not outcome.interrupted:
            is_kept = keep or data is not None
            failure_shell.offer(outcome.view, folder, manager_data(folder), opens=opens_shell, is_kept=is_kept)
    finally:
        end(keep=keep)
    return outcome.exit
