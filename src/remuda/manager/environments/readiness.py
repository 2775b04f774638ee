"""Finds what is missing on this machine for the jobs of a configuration: files, programs, container engines, users.

`manager check` and `manager doctor` use it. Nothing of it prevents a start, because the manager may run on another
machine, or the missing thing may appear later; but jobs would fail, or the runner would take none.

Each text begins with the key that it is about. The functions block, for an engine that does not answer for seconds."""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from remuda.manager.config.values import WITH_MACHINES, RunnerConfig
from remuda.manager.environments.obstacles import (
    ON_THIS_MACHINE,
    describe_closed_code,
    find_closed_folder,
    find_engine_problem,
    find_program_problem,
    find_setup_problems,
    find_user_problem,
)

_READ = "let the manager's user read it, or name another file"


def find_missing(runners: Iterable[tuple[int, RunnerConfig]]) -> Iterator[str]:
    """Yield a text for each thing that jobs of the runners need and that is not there, or cannot be used. `runners`:
    with their index in the configuration."""
    for index, runner in runners:
        where = f"runners[{index}]"
        yield from _find_missing_files(runner, where)
        yield from _find_missing_programs(runner, where)
        yield from _find_unusable_user(runner, where)
        yield from (
            f"{where}.{key}: {problem}; the runner takes no jobs" for key, problem in find_setup_problems(runner)
        )
        if problem := find_engine_problem(runner):
            yield f"{where}.docker.host: {problem} (the runner takes no jobs until it answers)"


def _find_missing_files(runner: RunnerConfig, where: str) -> Iterator[str]:
    """Yield texts about key files that the manager or the agent on this machine reads."""
    own = runner.remuda
    files = {}
    if runner.executor in ON_THIS_MACHINE:
        files["remuda.signing_key"] = own.signing_key
    if runner.executor == "ssh":
        files |= {"ssh.identity_file": runner.ssh.identity_file, "ssh.known_hosts_file": runner.ssh.known_hosts_file}
    if runner.executor in WITH_MACHINES:
        files["remuda.known_hosts_file"] = "" if own.machines else own.known_hosts_file
        for number, machine in enumerate(own.machines):
            files[f"remuda.machines[{number}].identity_file"] = machine.identity_file
            files[f"remuda.machines[{number}].known_hosts_file"] = machine.known_hosts_file
    if runner.executor not in (*ON_THIS_MACHINE, "custom"):
        files["remuda.frozen_agent"] = own.frozen_agent
    for key, name in files.items():
        if name and (problem := _unreadable(name)):
            yield f"{where}.{key}: {name}: {problem}"


def _unreadable(name: str) -> str:
    try:
        with Path(name).expanduser().open("rb") as file:
            file.read(1)
    except FileNotFoundError:
        return "there is no such file; correct the path, or write the file there"
    except OSError as error:
        return f"cannot be read: {error.strerror}; {_READ}"
    return ""


def _find_missing_programs(runner: RunnerConfig, where: str) -> Iterator[str]:
    if runner.executor == "plugin":
        from remuda.environments.errors import PluginError
        from remuda.environments.host import find_plugin

        try:
            find_plugin(runner.remuda.environment.plugin)
        except PluginError as error:
            yield f"{where}.remuda.environment.plugin: {error}"
    if runner.executor == "custom" and (problem := find_program_problem(runner.custom.cleanup_exec)):
        yield f"{where}.custom.cleanup_exec: {problem}; jobs run, but are not cleaned up"
    if runner.executor in ON_THIS_MACHINE and shutil.which("git") is None:
        yield f"{where}.executor: there is no git on this machine, so jobs cannot fetch their sources; install it"


def _find_unusable_user(runner: RunnerConfig, where: str) -> Iterator[str]:
    own = runner.remuda
    if runner.executor not in ON_THIS_MACHINE or not (own.run_as or own.first_uid):
        return
    key = f"{where}.remuda.{'first_uid' if own.first_uid else 'run_as'}"
    from remuda.steps.policy import hidden_folders

    places = (Path(place) for place in hidden_folders.own_places())
    if closed := next((folder for place in places if (folder := find_closed_folder(place / "any"))), None):
        yield f"{key}: {describe_closed_code(closed, 'the users of jobs')}"
    elif os.geteuid() == 0 and (problem := find_user_problem(runner)):  # the manager's own user may be root
        yield f"{key}: {problem}"
