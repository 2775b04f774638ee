"""The `remuda` command: the table of all commands, and the entry point.

`call` raises a command's errors; `main` prints them and exits. A command's module is imported only when it is called.
"""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from remuda.cli.exits import describe
from remuda.lib.exits import BadInputError, Exit

if TYPE_CHECKING:
    from cyclopts import App


class Command(NamedTuple):
    words: str
    target: str
    summary: str
    early: str = ""
    """Name of a function to call with the arguments before they are parsed."""
    without_arguments: str = ""
    """Name of a function to call in the place of `target` when there are no arguments, so that cyclopts is not
    imported. Saves 8 % of the time of a `remuda run` with one short job (21 pairs of runs; quartiles 2 and 17 %)."""


GROUPS = {
    "cell": "The cell: projects, pipelines, jobs, traces, artifacts.",
    "cell keys": "The keys of a cell.",
    "cell encryption": "The keys that a cell's secrets are encrypted with.",
    "manager": "The runner manager: takes jobs from a cell or a GitLab server and runs them.",
    "scale": "Machines that the manager creates for jobs.",
    "job": "Jobs of a cell: list, explain, cancel, run again, download artifacts.",
    "step": "Run steps without a job.",
    "environment": "Create and test plugins that add kinds of environments.",
    "plugin": "Install, create and test plugins that make machines for jobs.",
    "artifacts": "Verify artifacts of jobs.",
    "runner": "Runners of a cell: list, create, change, remove.",
    "pipeline": "Pipelines of a cell, and pipeline files: check, show, list, run, watch, cancel.",
    "variable": "CI variables of projects, groups and the cell.",
    "schedule": "Pipelines that start at set times.",
    "token": "Access tokens of users, projects and groups.",
    "project": "Projects of a cell: list, create, change, archive, delete, members.",
    "group": "Groups of a cell: list, create, change, delete, members.",
    "user": "Users of a cell: list, create, change, block, delete.",
    "agent": "The agent, which runs the steps of jobs.",
}

COMMANDS = (
    Command(
        "run",
        "remuda.cli.run:run",
        "Run the pipeline of a repository on this machine.",
        early="remuda.localrun.startup:begin",
        without_arguments="remuda.localrun.command:run",
    ),
    Command("up", "remuda.cli.up:up", "Start the whole platform: cell, runner manager and agent."),
    Command("pipeline lint", "remuda.cli.pipeline.files:lint", "Check a pipeline file."),
    Command("pipeline show", "remuda.cli.pipeline.files:show", "Show the pipeline of a file, or of a cell."),
    Command("pipeline graph", "remuda.cli.pipeline.files:graph", "Draw which job waits for which."),
    Command("pipeline list", "remuda.cli.pipeline.cell:list_pipelines", "List pipelines, newest first."),
    Command("pipeline run", "remuda.cli.pipeline.cell:run_pipeline", "Run a pipeline of a project of the cell."),
    Command("pipeline watch", "remuda.cli.pipeline.cell:watch_pipeline", "Show the progress of a pipeline."),
    Command("pipeline cancel", "remuda.cli.pipeline.cell:cancel", "Cancel a pipeline."),
    Command("pipeline retry", "remuda.cli.pipeline.cell:retry", "Run the failed jobs of a pipeline again."),
    Command("cell serve", "remuda.cli.cell.serve:serve", "Serve a cell."),
    Command("cell migrate", "remuda.cli.cell.data:migrate", "Migrate the tables of a cell to this release."),
    Command("cell check", "remuda.cli.cell.data:check", "Check the data of a cell."),
    Command("cell backup", "remuda.cli.cell.data:backup", "Write a backup of a cell."),
    Command("cell restore", "remuda.cli.cell.data:restore", "Create a cell from a backup."),
    Command("cell admin-token", "remuda.cli.cell.admin_token:admin_token", "Create a new administrator's token."),
    Command("cell service", "remuda.cli.cell.service:service", "Print systemd units for a cell."),
    Command("cell openapi", "remuda.cli.cell.openapi:openapi", "Print the OpenAPI document of a cell."),
    Command("cell keys list", "remuda.cli.cell.keys:list_keys", "List the keys that sign tokens."),
    Command("cell keys rotate", "remuda.cli.cell.keys:rotate", "Replace a key that signs tokens."),
    Command("cell audit", "remuda.cli.cell.audit:audit", "Show the audit log of a cell."),
    Command("cell encryption list", "remuda.cli.cell.encryption:list_keys", "List the encryption keys of a cell."),
    Command("cell encryption rotate", "remuda.cli.cell.encryption:rotate", "Encrypt everything with a new key."),
    Command("cell encryption forget", "remuda.cli.cell.encryption:forget", "Remove an old encryption key."),
    Command("cell encryption generate", "remuda.cli.cell.encryption:generate", "Print a new encryption key."),
    Command("manager run", "remuda.cli.manager.run:run", "Take jobs and run them."),
    Command("manager status", "remuda.cli.manager.status:status", "Show the state of a running manager."),
    Command("manager drain", "remuda.cli.manager.status:drain", "Let a manager take no more jobs, and end."),
    Command("manager check", "remuda.cli.manager.config:check", "Check a configuration file."),
    Command("manager doctor", "remuda.cli.manager.config:doctor", "Examine a configuration of gitlab-runner."),
    Command("manager schema", "remuda.cli.manager.config:schema", "Print a JSON schema of config.toml."),
    Command("manager register", "remuda.cli.manager.register:register", "Add a runner to a configuration file."),
    Command("manager list", "remuda.cli.manager.runners:list_runners", "List the runners of a configuration file."),
    Command("manager verify", "remuda.cli.manager.runners:verify", "Ask the servers whether they know the runners."),
    Command("manager unregister", "remuda.cli.manager.runners:unregister", "Remove runners from their servers."),
    Command("manager reset-token", "remuda.cli.manager.runners:reset_token", "Replace the tokens of runners."),
    Command("manager service", "remuda.cli.manager.service:service", "Print a service file for the manager."),
    Command("scale explain", "remuda.cli.scale:explain", "Explain the number of machines."),
    Command("scale sweep", "remuda.cli.scale:sweep", "List or remove machines without an owner."),
    Command("login", "remuda.cli.access.login:login", "Sign in to a cell, so that commands find it."),
    Command("open", "remuda.cli.access.pages:open_pages", "Open the web pages of a cell in a browser, signed in."),
    Command("logout", "remuda.cli.access.login:logout", "Forget a profile of `remuda login`."),
    Command("job list", "remuda.cli.job.listing:list_jobs", "List jobs, newest first."),
    Command("job show", "remuda.cli.job.listing:show", "Show a job and its steps."),
    Command("job why", "remuda.cli.job.listing:why", "Explain why a job waits, or ended."),
    Command("job log", "remuda.cli.job.log:log", "Print a job's log."),
    Command("job shell", "remuda.cli.job.shell:shell", "Open a shell in a job that runs, or failed and is kept."),
    Command("job release", "remuda.cli.job.shell:release", "Stop keeping a failed job for debugging."),
    Command("job cancel", "remuda.cli.job.actions:cancel", "Cancel a job."),
    Command("job retry", "remuda.cli.job.actions:retry", "Run a job again."),
    Command("job play", "remuda.cli.job.actions:play", "Start a manual or delayed job."),
    Command("job erase", "remuda.cli.job.actions:erase", "Delete the log and the artifacts of a job."),
    Command("job artifacts", "remuda.cli.job.artifacts:artifacts", "List or download the artifacts of a job."),
    Command("job payload", "remuda.cli.job.log:payload", "Print the payload that a runner gets with a job."),
    Command("step run", "remuda.cli.step:run", "Run a step on this machine and print its result."),
    Command("environment new", "remuda.cli.environment:new", "Create an environment plugin."),
    Command("environment check", "remuda.cli.environment:check", "Test an environment plugin."),
    Command("plugin install", "remuda.cli.plugin:install", "Install plugins that make machines."),
    Command("plugin list", "remuda.cli.plugin:list_plugins", "List available plugins."),
    Command("plugin new", "remuda.cli.plugin:new", "Create a plugin, in Python or Go."),
    Command("plugin check", "remuda.cli.plugin:check", "Test a plugin."),
    Command(
        "artifacts verify",
        "remuda.cli.artifacts_verify:verify",
        "Check that files are unchanged since a runner signed them.",
    ),
    Command("runner list", "remuda.cli.runner.listing:list_runners", "List runners and their managers."),
    Command("runner set", "remuda.cli.runner.listing:set_runner", "Change settings of a runner that GitLab lacks."),
    Command("runner create", "remuda.cli.runner.changes:create", "Create a runner, and print its token."),
    Command("runner pause", "remuda.cli.runner.changes:pause", "Let a runner take no more jobs."),
    Command("runner resume", "remuda.cli.runner.changes:resume", "Let a paused runner take jobs again."),
    Command("runner rotate", "remuda.cli.runner.changes:rotate", "Replace the token of a runner."),
    Command("runner tags", "remuda.cli.runner.changes:tags", "Show or change the tags of a runner."),
    Command("runner remove", "remuda.cli.runner.changes:remove", "Remove a runner."),
    Command(
        "variable list",
        "remuda.cli.admin.variable:list_variables",
        "List the CI variables of a project, group or cell.",
    ),
    Command("variable get", "remuda.cli.admin.variable:get", "Print the value of a variable."),
    Command("variable set", "remuda.cli.admin.variable:set_variable", "Create or change a variable."),
    Command("variable delete", "remuda.cli.admin.variable:delete", "Delete a variable."),
    Command("schedule list", "remuda.cli.admin.schedule:list_schedules", "List the schedules of a project."),
    Command("schedule show", "remuda.cli.admin.schedule:show", "Show a schedule."),
    Command("schedule create", "remuda.cli.admin.schedule:create", "Create a schedule."),
    Command("schedule update", "remuda.cli.admin.schedule:update", "Change a schedule."),
    Command("schedule run", "remuda.cli.admin.schedule:run", "Start the pipeline of a schedule now."),
    Command("schedule delete", "remuda.cli.admin.schedule:delete", "Delete a schedule."),
    Command("token list", "remuda.cli.admin.token:list_tokens", "List access tokens."),
    Command("token create", "remuda.cli.admin.token:create", "Create an access token, and print it."),
    Command("token revoke", "remuda.cli.admin.token:revoke", "Make an access token invalid."),
    Command("token rotate", "remuda.cli.admin.token:rotate", "Replace an access token by a new one."),
    Command("project list", "remuda.cli.admin.project:list_projects", "List the projects that you may see."),
    Command("project show", "remuda.cli.admin.project:show", "Show a project."),
    Command("project create", "remuda.cli.admin.project:create", "Create a project."),
    Command("project set", "remuda.cli.admin.project:set_project", "Change settings of a project."),
    Command("project archive", "remuda.cli.admin.project:archive", "Archive a project."),
    Command("project unarchive", "remuda.cli.admin.project:unarchive", "Make an archived project work again."),
    Command("project delete", "remuda.cli.admin.project:delete", "Delete a project."),
    Command("project members", "remuda.cli.admin.project:members", "List or change the members of a project."),
    Command("group list", "remuda.cli.admin.group:list_groups", "List the groups that you may see."),
    Command("group show", "remuda.cli.admin.group:show", "Show a group with its subgroups and projects."),
    Command("group create", "remuda.cli.admin.group:create", "Create a group."),
    Command("group set", "remuda.cli.admin.group:set_group", "Change a group."),
    Command("group delete", "remuda.cli.admin.group:delete", "Delete a group."),
    Command("group members", "remuda.cli.admin.group:members", "List or change the members of a group."),
    Command("user list", "remuda.cli.admin.user:list_users", "List the users that you may see."),
    Command("user show", "remuda.cli.admin.user:show", "Show a user, or yourself."),
    Command("user create", "remuda.cli.admin.user:create", "Create a user."),
    Command("user set", "remuda.cli.admin.user:set_user", "Change a user."),
    Command("user block", "remuda.cli.admin.user:block", "Block a user."),
    Command("user unblock", "remuda.cli.admin.user:unblock", "Let a blocked user work again."),
    Command("user delete", "remuda.cli.admin.user:delete", "Delete a user."),
    Command("events", "remuda.cli.events:events", "Print changes in a cell as they happen."),
    Command("agent serve", "remuda.cli.agent:serve", "Serve jobs until told to stop."),
    Command("agent proxy", "remuda.cli.agent:proxy", "Connect stdin and stdout to the agent of this machine."),
    Command("agent bootstrap", "remuda.cli.agent:bootstrap", "Install the agent on a machine."),
    Command("agent pack", "remuda.cli.agent:pack", "Write the agent as one portable file."),
    Command("completion", "remuda.cli.completion:completion", "Print a completion script for a shell."),
    Command("docs", "remuda.cli.documentation:docs", "Print where a page of the documentation is, or open it."),
    Command("version", "remuda.cli.version:version", "Print the version."),
)

ABOUT = """Runs CI jobs on fleets of machines.

Start with a repository that has a .gitlab-ci.yml:

    remuda run                 run its pipeline here, nothing else needed
    remuda up                  a whole platform on this machine
    remuda COMMAND --help      what a command does, with examples
    remuda docs                where the documentation is
    remuda --version           the version

Exit codes: 0 success, 1 failure, 2 bad input, 130 interrupted.
REMUDA_DEBUG=1 shows the traceback of an error."""


def build_app(arguments: Sequence[str]) -> "App":
    """Build the command tree. Imports only the command that `arguments` name, for its help; others show a summary."""
    # Imported here, so that `main` handles a Ctrl-C during the import.
    from cyclopts import App, Parameter

    app = App(
        name="remuda",
        help=ABOUT,
        help_format="plaintext",
        version_flags=[],
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(show_default=_show_default),
    )
    groups = {"": app}
    for name, about in GROUPS.items():
        above, _, word = name.rpartition(" ")
        groups[name] = App(name=word, help=about)
        groups[above].command(groups[name])
    for command in COMMANDS:
        above, _, word = command.words.rpartition(" ")
        words = command.words.split()
        summary: str | None = command.summary
        if list(arguments[: len(words)]) == words:
            summary = _read_help(command.target) if "--help" in arguments or "-h" in arguments else None
        groups[above].command(command.target, name=word, help=summary)
    return app


def _read_help(target: str) -> str:
    from rich.console import Console

    from remuda.cli.render.help_text import format_help

    return format_help(_load(target).__doc__ or "", Console().width)


def _show_default(value: object) -> str | None:
    return None if value in (None, "", ()) or value is False else str(value)


def call(arguments: Sequence[str]) -> int:
    if list(arguments) in (["--version"], ["-V"]):
        arguments = ["version"]
    for command in COMMANDS:
        if command.early and list(arguments[:1]) == [command.words]:
            _load(command.early)(arguments[1:])
        if command.without_arguments and list(arguments) == [command.words]:
            return int(_load(command.without_arguments)())
    if (helped := _words_of_help(arguments)) is not None:
        arguments = [*helped, "--help"]
    app = build_app(arguments)
    from cyclopts import CycloptsError, UnknownCommandError

    try:
        result = app(list(arguments), exit_on_error=False, print_error=False)
    except UnknownCommandError:
        raise _unknown_command(arguments) from None
    except CycloptsError as error:
        from remuda.cli.usage_errors import explain_usage_error

        words = next((c.words for c in COMMANDS if list(arguments[: len(c.words.split())]) == c.words.split()), "")
        raise BadInputError(f"{explain_usage_error(error)} `remuda {words} --help` has examples") from None
    return int(result) if result is not None else Exit.SUCCESS


def _words_of_help(arguments: Sequence[str]) -> list[str] | None:
    """Return the words of the command whose help is asked for, as in `help job list` or `job help list`; None if the
    arguments do not ask so. Raises BadInputError if there is no such command."""
    if "help" not in arguments:
        return None
    position = list(arguments).index("help")
    words = [*arguments[:position], *arguments[position + 1 :]]
    if position and " ".join(arguments[:position]) not in GROUPS:
        return None
    if words and " ".join(words) not in _all_words():
        raise _unknown_command(words)
    return words


def _unknown_command(arguments: Sequence[str]) -> BadInputError:
    from remuda.cli.suggestions import explain_unknown_command

    return BadInputError(explain_unknown_command(arguments, _all_words()))


def _all_words() -> list[str]:
    return [*GROUPS, *(command.words for command in COMMANDS)]


def _load(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def main() -> None:
    # Most objects of the start stay alive; collecting them again and again takes a tenth of the start.
    gc.set_threshold(20_000, 50, 100)
    try:
        code = call(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        code = Exit.BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("REMUDA_DEBUG") == "1":
            raise
        message, code = describe(error)
        with suppress(OSError):
            print(f"remuda: {message}", file=sys.stderr, flush=True)
    _flush_output()
    if (startup := sys.modules.get("remuda.localrun.startup")) is not None:
        startup.end()
    # Everything is closed and written. The interpreter's clean-up of a thousand modules would take longer than a job.
    os._exit(code)


def _flush_output() -> None:
    """Flush stdout and stderr. A stream whose reader is gone is redirected to /dev/null, because the interpreter
    flushes it again at exit, and an error there would change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
