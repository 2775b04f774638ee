"""The `remuda` command: which commands exist, and how every error becomes one message and an exit code.

`call` runs a command and raises; `main` is the shell around it that prints and exits. What a command does stands in
its own module, which is imported only when that command is called.
"""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from remuda.cli import parse_mode
from remuda.cli.exits import Exit, code_of, first_cause

if TYPE_CHECKING:
    from cyclopts import App


class Command(NamedTuple):
    """A command: the words that call it, the function behind it, and its line in the list of commands."""

    words: str
    target: str
    summary: str
    early: str = ""
    """What to do with the arguments before anything else, the reading of options included."""
    is_plain: bool = False
    """Without arguments it is called at once: there are no options to read. Its modules use `parameter` for theirs."""


GROUPS = {
    "cell": "The cell: projects, pipelines, jobs, traces, artifacts.",
    "cell keys": "The keys of a cell.",
    "cell encryption": "The keys that a cell's secrets are encrypted with.",
    "manager": "The runner manager: takes jobs from a cell or a GitLab server and runs them.",
    "scale": "Machines that are created for jobs, and removed.",
    "job": "Look at jobs.",
    "step": "Run steps without a job.",
    "environment": "Write and try out plugins that add kinds of environments.",
    "plugin": "Install, write and try out plugins that make machines for jobs.",
    "artifacts": "Look at what jobs have left.",
    "runner": "Look at runners, and change their settings.",
    "pipeline": "Look at a pipeline file without running it.",
    "agent": "The agent that runs steps where the job runs.",
}

COMMANDS = (
    Command(
        "run",
        "remuda.cli.run:run",
        "Run a repository's pipeline here and now.",
        early="remuda.localrun.startup:begin",
        is_plain=True,
    ),
    Command("up", "remuda.cli.up:up", "Start the whole platform: cell, runner manager and agent."),
    Command("pipeline lint", "remuda.cli.pipeline:lint", "Check a pipeline file."),
    Command("pipeline show", "remuda.cli.pipeline:show", "Show the pipeline that a file makes."),
    Command("pipeline graph", "remuda.cli.pipeline:graph", "Draw who waits for whom."),
    Command("cell serve", "remuda.cli.cell.serve:serve", "Serve a cell."),
    Command("cell migrate", "remuda.cli.cell.data:migrate", "Bring a cell's tables up to date."),
    Command("cell check", "remuda.cli.cell.data:check", "Look whether what a cell keeps hangs together."),
    Command("cell backup", "remuda.cli.cell.data:backup", "Write everything that a cell keeps to a folder."),
    Command("cell restore", "remuda.cli.cell.data:restore", "Make a cell of a backup."),
    Command("cell openapi", "remuda.cli.cell.openapi:openapi", "Print the OpenAPI document of a cell."),
    Command("cell keys list", "remuda.cli.cell.keys:list_keys", "List the keys that sign tokens."),
    Command("cell keys rotate", "remuda.cli.cell.keys:rotate", "Make a new key in place of the one in use."),
    Command("cell audit", "remuda.cli.cell.audit:audit", "Show the audit log of a cell."),
    Command("cell encryption list", "remuda.cli.cell.encryption:list_keys", "List the encryption keys of a cell."),
    Command("cell encryption rotate", "remuda.cli.cell.encryption:rotate", "Encrypt everything with a new key."),
    Command("cell encryption forget", "remuda.cli.cell.encryption:forget", "Remove an old encryption key."),
    Command("cell encryption generate", "remuda.cli.cell.encryption:generate", "Print a new encryption key."),
    Command("manager run", "remuda.cli.manager.run:run", "Take jobs and run them."),
    Command("manager status", "remuda.cli.manager.status:status", "Show how a running manager stands."),
    Command("manager drain", "remuda.cli.manager.status:drain", "Have a manager take no more jobs, and end."),
    Command("manager check", "remuda.cli.manager.config:check", "Check a configuration file."),
    Command("manager doctor", "remuda.cli.manager.config:doctor", "Say what switching from gitlab-runner changes."),
    Command("manager schema", "remuda.cli.manager.config:schema", "Print a JSON schema of config.toml."),
    Command("manager register", "remuda.cli.manager.register:register", "Add a runner to a configuration file."),
    Command("manager list", "remuda.cli.manager.runners:list_runners", "List the runners of a configuration file."),
    Command("manager verify", "remuda.cli.manager.runners:verify", "Ask the servers whether they know the runners."),
    Command("manager unregister", "remuda.cli.manager.runners:unregister", "Take runners off their servers."),
    Command("manager reset-token", "remuda.cli.manager.runners:reset_token", "Have new tokens made for runners."),
    Command("manager service", "remuda.cli.manager.service:service", "Print a service file for the manager."),
    Command("scale explain", "remuda.cli.scale:explain", "Say why there are as many machines as there are."),
    Command("scale sweep", "remuda.cli.scale:sweep", "Find machines that nobody owns any more, and remove them."),
    Command("job list", "remuda.cli.job:list_jobs", "List jobs, newest first."),
    Command("job show", "remuda.cli.job:show", "Show a job and its steps."),
    Command("job why", "remuda.cli.job:why", "Say why a job waits, or ended as it did."),
    Command("job log", "remuda.cli.job:log", "Print a job's log."),
    Command("job shell", "remuda.cli.job_shell:shell", "Open a shell in a job that runs or is held."),
    Command("job release", "remuda.cli.job_shell:release", "Let a held job go."),
    Command("job cancel", "remuda.cli.job:cancel", "Stop a job."),
    Command("job payload", "remuda.cli.job:payload", "Print what a runner gets with a job, without secrets."),
    Command("step run", "remuda.cli.step:run", "Run a step here and print what came of it."),
    Command("environment new", "remuda.cli.environment:new", "Write the beginning of an environment plugin."),
    Command("environment check", "remuda.cli.environment:check", "Try an environment plugin out, in any language."),
    Command("plugin install", "remuda.cli.plugin:install", "Install plugins that make machines."),
    Command("plugin list", "remuda.cli.plugin:list_plugins", "List the plugins that there are."),
    Command("plugin new", "remuda.cli.plugin:new", "Write the beginning of a plugin, in Python or Go."),
    Command("plugin check", "remuda.cli.plugin:check", "Try a plugin out, in any language."),
    Command(
        "artifacts verify", "remuda.cli.artifacts_verify:verify", "Check that files are those that a runner has signed."
    ),
    Command("runner list", "remuda.cli.runner:list_runners", "List runners and their managers."),
    Command("runner set", "remuda.cli.runner:set_runner", "Change the settings of a runner."),
    Command("events", "remuda.cli.events:events", "Print what changes in a cell, as it changes."),
    Command("agent serve", "remuda.cli.agent:serve", "Serve jobs until told to stop."),
    Command("agent proxy", "remuda.cli.agent:proxy", "Connect stdin and stdout to the agent of this machine."),
    Command("agent bootstrap", "remuda.cli.agent:bootstrap", "Put the agent on a machine."),
    Command("agent pack", "remuda.cli.agent:pack", "Write the agent as one portable file."),
    Command("version", "remuda.cli.version:version", "Print the version."),
)

ABOUT = """Runs CI jobs on a herd of fresh machines.

Start with a repository that has a .gitlab-ci.yml:

    remuda run                 run its pipeline here, nothing else needed
    remuda up                  a whole platform on this machine
    remuda COMMAND --help      what a command does, with examples

Exit codes: 0 success, 1 failure, 2 bad input, 130 interrupted.
REMUDA_DEBUG=1 shows the traceback of an error."""


def build_app(arguments: Sequence[str]) -> "App":
    """The command tree.

    A summary given here replaces a function's docstring; so it is given to all commands but the one that is called,
    whose own page then shows the docstring with its examples.
    """
    # Imported here, inside `main`'s care: a Ctrl-C during the import is an interrupt like any other.
    from cyclopts import App

    app = App(
        name="remuda",
        help=ABOUT,
        help_format="plaintext",
        version_flags=[],
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    groups = {"": app}
    for name, about in GROUPS.items():
        above, _, word = name.rpartition(" ")
        groups[name] = App(name=word, help=about)
        groups[above].command(groups[name])
    for command in COMMANDS:
        above, _, word = command.words.rpartition(" ")
        words = command.words.split()
        called = list(arguments[: len(words)]) == words
        groups[above].command(command.target, name=word, help=None if called else command.summary)
    return app


def call(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name; its exit code. Raises whatever went wrong."""
    plain = next((command for command in COMMANDS if command.is_plain and [command.words] == list(arguments)), None)
    parse_mode.options_are_read = plain is None
    _begin_early(arguments)
    if plain is not None:
        result = _named(plain.target)()
    else:
        result = build_app(arguments)(list(arguments), exit_on_error=False, print_error=False)
    return int(result) if result is not None else Exit.SUCCESS


def _begin_early(arguments: Sequence[str]) -> None:
    for command in COMMANDS:
        if command.early and list(arguments[:1]) == [command.words]:
            _named(command.early)(arguments[1:])


def _named(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def describe(error: BaseException) -> tuple[str, Exit]:
    """What to print of an error, and how to exit."""
    error = first_cause(error)
    code = code_of(error)
    if code is not None:
        return str(error) or "interrupted", code
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        # Only arguments, variables and file names come with bytes that are no text.
        return "an option, a variable or a file name that was given is no UTF-8; write it in UTF-8", Exit.BAD_INPUT
    if isinstance(error, PermissionError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}you may not do that; correct the permissions, or give another place", Exit.BAD_INPUT
    if isinstance(error, OSError):
        return f"{error}. Is the disk full, or are permissions missing?", Exit.FAILURE
    return (
        f"internal error: {type(error).__name__}: {error}\n"
        "This is a fault in remuda. REMUDA_DEBUG=1 shows where; please report it.",
        Exit.FAILURE,
    )


def main() -> None:
    """Entry point of the `remuda` script."""
    # Most of what is made at the start stays; looking through it again and again takes a tenth of the start.
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
    _let_go_of_output()
    if (beginning := sys.modules.get("remuda.localrun.startup")) is not None:
        beginning.end()
    # Everything is closed and written; to take a thousand modules apart would take longer than a job.
    os._exit(code)


def _let_go_of_output() -> None:
    """Where nobody reads any more, the interpreter's last flush would complain and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
