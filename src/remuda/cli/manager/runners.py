"""`remuda manager list|verify|unregister|reset-token`: list and change the runners of a configuration file."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.options import ConfigToml, Output
from remuda.cli.render.listing import print_json, print_table
from remuda.lib import event_loop
from remuda.lib.exits import BadInputError, Exit

if TYPE_CHECKING:
    from remuda.manager.registration.runner_entries import Selection

Name = Annotated[str, Parameter(help="Choose the runner with this name.")]
Token = Annotated[str, Parameter(help="Choose the runner with this token.")]
Url = Annotated[str, Parameter(help="Choose only a runner of this server.")]
All = Annotated[bool, Parameter(help="Choose all runners of the file.", negative="")]


def list_runners(*, config: ConfigToml, output: Output = "text") -> None:
    """List the runners of a configuration file. No server is asked. Tokens are shortened.

    Try:

        remuda manager list --config config.toml
        remuda manager list --config config.toml --output json
    """
    from remuda.manager.registration.runner_entries import list_runners

    runners = list_runners(config)
    if output == "json":
        keys = ("name", "id", "url", "short", "executor")
        print_json([{key: getattr(runner, key) for key in keys} for runner in runners])
        return
    rows = [(runner.name, str(runner.id or ""), runner.executor, runner.short, runner.url) for runner in runners]
    print_table([("name", "id", "executor", "token", "server"), *rows])


def verify(
    *,
    config: ConfigToml,
    name: Name = "",
    token: Token = "",
    url: Url = "",
    delete: Annotated[
        bool, Parameter(help="Remove the runners that their server does not know from the file.", negative="")
    ] = False,
) -> int:
    """Ask the servers whether they know the runners of a file: all runners, or the chosen ones.

    If a server cannot be reached, this is an error, and no runner is removed. Exit code 1 if some runners are not
    known.

    Try:

        remuda manager verify --config config.toml
        remuda manager verify --config config.toml --name builder
        remuda manager verify --config config.toml --delete
    """
    from remuda.manager.registration.runner_entries import Selection
    from remuda.manager.registration.runner_entries import verify as ask

    results = event_loop.run(ask(config.absolute(), Selection(name=name, token=token, url=url), delete=delete))
    for result in results:
        label = result.runner.name or result.runner.short
        print(f"{label} ({result.runner.short}): {'is known there' if result.is_known else result.problem}")
    return Exit.SUCCESS if all(result.is_known for result in results) else Exit.FAILURE


def unregister(
    *, config: ConfigToml, name: Name = "", token: Token = "", url: Url = "", all_runners: All = False
) -> None:
    """Remove runners from their servers and from the file.

    If the runner was created on the server (glrt- token), only this manager is removed there; the runner stays for
    other managers. A runner that its server does not know any more is removed from the file, too.

    Try:

        remuda manager unregister --config config.toml --name builder
        remuda manager unregister --config config.toml --url https://gitlab.example.com --token glrt-...
        remuda manager unregister --config config.toml --all-runners
    """
    from remuda.manager.registration.runner_entries import unregister as remove

    for runner in event_loop.run(remove(config.absolute(), _select(name, token, url, all_runners))):
        print(f"{runner.name or runner.short} ({runner.short}) is removed from {runner.url} and {config}")


def reset_token(
    *,
    config: ConfigToml,
    name: Name = "",
    token: Token = "",
    url: Url = "",
    all_runners: All = False,
    pat: Annotated[
        str, Parameter(help="Token of a user, for runners whose own token is not valid any more.", env_var="PAT")
    ] = "",
) -> None:
    """Let the server create new tokens for runners, and write them to the file. The old tokens become invalid.

    A running manager renews tokens that expire by itself, and reads a new token from the file. The server invalidates
    the old token when it creates the new one: if the command is killed before it has written the file, both are
    lost, and only --pat helps.

    Try:

        remuda manager reset-token --config config.toml --name builder
        PAT=glpat-... remuda manager reset-token --config config.toml --all-runners
    """
    from remuda.manager.registration.runner_entries import reset_tokens

    selection = _select(name, token, url, all_runners)
    for runner in event_loop.run(reset_tokens(config.absolute(), selection, personal=pat)):
        print(f"{runner.name or runner.short} has a new token ({runner.short}), which is in {config}")


def _select(name: str, token: str, url: str, all_runners: bool) -> "Selection":
    from remuda.manager.registration.runner_entries import Selection

    selection = Selection(name=name, token=token, url=url, all=all_runners)
    if selection.is_empty:
        raise BadInputError("which runner? Give --name, --token or --all-runners; `remuda manager list` shows them")
    return selection
