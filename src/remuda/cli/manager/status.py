"""`remuda manager status` and `remuda manager drain`: call a running manager through the socket in its data folder."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.options import Output
from remuda.cli.render.listing import local_time, print_json, print_table
from remuda.lib import event_loop
from remuda.lib.exits import BadInputError, CommandError, Exit
from remuda.localrun.data_folder import data_folder
from remuda.localrun.render.words import plural

if TYPE_CHECKING:
    from remuda.manager.process.status import ManagerStatus, RunnerStatus

Config = Annotated[
    Path | None, Parameter(help="Configuration file that the manager was started with.", env_var="CONFIG_FILE")
]
Data = Annotated[
    Path | None,
    Parameter(help="Data folder of the manager [default: that of --config, else that of the only running manager]."),
]


def status(*, config: Config = None, data: Data = None, output: Output = "text") -> None:
    """Show the state of a running manager: slots, servers, jobs, machines and configuration.

    Try:

        remuda manager status --config config.toml
        remuda manager status --output json
    """
    from remuda.manager.process.control import ask_status

    report = event_loop.run(ask_status(find_manager_folder(config, data)))
    if output == "json":
        print_json(report)
    else:
        show(report)


def drain(
    *,
    config: Config = None,
    data: Data = None,
    wait: Annotated[bool, Parameter(help="Return when the manager has ended, not at once.", negative="")] = False,
    timeout: Annotated[str, Parameter(help="With --wait: maximum time to wait, such as 30m [default: no limit].")] = "",
) -> int:
    """Let a manager take no more jobs, and end when its running jobs have ended. SIGQUIT does the same.

    Exit code 1 if the manager ended with jobs left because the drain time was over, or if --timeout was reached; then
    the manager continues draining.

    Try:

        remuda manager drain --config config.toml
        remuda manager drain --config config.toml --wait --timeout 30m
    """
    from remuda.lib.durations import parse_duration

    if timeout and not wait:
        raise BadInputError("--timeout says how long --wait takes; give --wait too")
    try:
        seconds = parse_duration(timeout)
    except ValueError as error:
        raise BadInputError(f"--timeout: {error}") from None
    return event_loop.run(_drain(find_manager_folder(config, data), wait=wait, seconds=seconds or None))


async def _drain(folder: Path, *, wait: bool, seconds: float | None) -> int:
    from remuda.manager.process.control import ask_drain

    try:
        async with asyncio.timeout(seconds):
            remaining = await ask_drain(
                folder,
                on_begin=lambda jobs: print(f"no more jobs are taken; {plural(jobs, 'job')} to wait for", flush=True),
                waits=wait,
            )
    except TimeoutError:
        raise CommandError(
            f"the manager still has jobs after {seconds:g} s; it goes on draining. See: remuda manager status"
        ) from None
    if not wait:
        return Exit.SUCCESS
    if remaining:
        print(f"the manager has ended; {plural(remaining, 'job')} left to the agent, for the next start")
        return Exit.FAILURE
    print("the manager has ended")
    return Exit.SUCCESS


def find_manager_folder(config: Path | None, data: Path | None) -> Path:
    """Return the data folder that the options select, else that of the only running manager. Raises BadInputError if
    there is none or more than one."""
    from remuda.manager.process.control import is_served
    from remuda.manager.process.known_managers import KnownManager, find_data_folder, list_managers

    if data is not None:
        return data.absolute()
    own = data_folder(None)
    if config is not None:
        folder = find_data_folder(own / "managers", config)
        if not is_served(folder):
            raise BadInputError(
                f"no manager runs with the configuration {config}; start it (remuda manager run --config {config}), "
                "or name the data folder of another manager with --data"
            )
        return folder
    known = [KnownManager(config="", data=str(own / "manager")), *list_managers(own / "managers")]
    running = [manager for manager in known if is_served(Path(manager.data))]
    if len(running) == 1:
        return Path(running[0].data)
    if not running:
        raise BadInputError(
            "none of your managers runs with the usual data folder; name its configuration with --config, or its "
            "folder with --data"
        )
    options = [f"--config {manager.config}" if manager.config else f"--data {manager.data}" for manager in running]
    raise BadInputError(f"{len(running)} managers run here; choose one with {' or '.join(options)}")


def show(report: "ManagerStatus") -> None:
    slots = report.slots
    name = f"manager of {report.config.file}" if report.config.file else f"manager {report.system_id}"
    print(f"{name}: {report.state}")
    read = f", configuration read {local_time(report.config.loaded_at)}" if report.config.file else ""
    print(f"process {report.pid}, version {report.version}, system id {report.system_id}{read}")
    if report.config.error:
        print(f"  the changed file is not used: {report.config.error}")
    if report.config.restart:
        print(f"  changed, but only after a restart: {', '.join(report.config.restart)}")
    print(
        f"slots {slots.concurrent}: {slots.running} with jobs, {slots.asking} asking, {slots.free} free "
        f"(saturation {slots.saturation:.0%})"
    )
    for path in report.damaged_journals:
        print(f"a journal was damaged and moved aside: {path}; remove it when nobody needs it")
    for heading, rows in _tables(report):
        if rows:
            print()
            print_table([heading, *rows])
    for problem in _problems(report):
        print(f"\n{problem}")


def _problems(report: "ManagerStatus") -> Iterator[str]:
    for runner in report.runners:
        if runner.problem:
            yield f"{runner.name or runner.runner}: {runner.problem}"
    for fleet in report.fleets:
        yield from (f"{fleet.name or fleet.runner}: {problem}" for problem in fleet.problems)
    if any(fleet.problems for fleet in report.fleets):
        yield "more about machines: remuda scale explain"
    yield from (f"job {job.id} waits: {job.waits_for}" for job in report.jobs if job.waits_for)
    yield from (f"machine {machine.machine}: {machine.problem}" for machine in report.machines if machine.problem)


def _tables(report: "ManagerStatus") -> Iterable[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    yield (
        ("runner", "server", "executor", "jobs", "health", "answer", "at", "requests", "disk free"),
        [
            (
                runner.name or runner.runner,
                runner.url,
                runner.executor,
                f"{runner.jobs}" + (f"/{most}" if (most := _most(runner)) else ""),
                _health(runner),
                str(runner.last_status or ""),
                local_time(runner.answered_at),
                f"{runner.open_requests}/{runner.used_limit} of {runner.hard_limit}",
                "" if runner.disk_free_bytes is None else f"{runner.disk_free_bytes >> 20} MiB",
            )
            for runner in report.runners
        ],
    )
    yield (
        ("job", "runner", "state", "stage", "since", "received", "machine", "log"),
        [
            (
                str(job.id),
                job.runner,
                job.state,
                job.stage,
                local_time(job.stage_since),
                local_time(job.received_at),
                job.machine,
                f"{job.log_bytes} bytes",
            )
            for job in report.jobs
        ],
    )
    yield (
        ("runner", "machines", "asked for", "jobs there", "jobs that wait"),
        [
            (
                (fleet.name or fleet.runner) + (" (ending)" if fleet.is_ending else ""),
                (", ".join(f"{count} {state}" for state, count in sorted(fleet.instances.items())) or "none")
                + (f" of at most {fleet.max_instances}" if fleet.max_instances else ""),
                str(fleet.requested),
                str(fleet.held),
                str(fleet.waiting),
            )
            for fleet in report.fleets
        ],
    )
    yield (
        ("machine", "agent", "jobs"),
        [
            (machine.machine, "connected" if machine.is_connected else "not reached", str(machine.jobs))
            for machine in report.machines
        ],
    )


def _health(runner: "RunnerStatus") -> str:
    if runner.is_blocked:
        has_disk = runner.disk_free_bytes is None or runner.disk_free_bytes >= runner.disk_least_bytes
        return "blocked" if has_disk else "no disk"
    return runner.health


def _most(runner: "RunnerStatus") -> int | None:
    limits = [limit for limit in (runner.limit or None, runner.capacity) if limit is not None]
    return min(limits) if limits else None
