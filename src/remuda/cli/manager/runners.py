"""`remuda manager list|verify|unregister|reset-token`: the runners that a configuration file has."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.options import Output
from remuda.cli.render.listing import print_json, print_table
from remuda.lib.exits import BadInputError, Exit

if TYPE_CHECKING:
    from remuda.manager.registration.runner_entries import Selection

Config = Annotated[Path, Parameter(help="gitlab-runner's config.toml.", env_var="CONFIG_FILE")]
Name = Annotated[str, Parameter(help="The runner of this name.")]
Token = Annotated[str, Parameter(help="The runner with this token.")]
Url = Annotated[str, Parameter(help="Only a runner of this server.")]
All = Annotated[bool, Parameter(help="All runners of the file.", negative="")]


def list_runners(*, config: Config, output: Output = "text") -> None:
    """List the runners of a configuration file. No server is asked; of tokens only the part that may be shown is.

    Try:

        remuda manager list --config config.toml
        remuda manager list --config config.toml --output json
    """
    from remuda.manager.registration.runner_entries import list_runners

    found = list_runners(config)
    if output == "json":
        keys = ("name", "id", "url", "short", "executor")
        print_json([{key: getattr(one, key) for key in keys} for one in found])
        return
    rows = [(one.name, str(one.id or ""), one.executor, one.short, one.url) for one in found]
    print_table([("name", "id", "executor", "token", "server"), *rows])


def verify(
    *,
    config: Config,
    name: Name = "",
    token: Token = "",
    url: Url = "",
    delete: Annotated[bool, Parameter(help="Take out those that their server does not know.", negative="")] = False,
) -> int:
    """Ask the servers whether they know the runners of a file: all of them, or one.

    A server that cannot be reached is an error, and nothing is taken out then. Exit code 1: some are not known.

    Try:

        remuda manager verify --config config.toml
        remuda manager verify --config config.toml --name builder
        remuda manager verify --config config.toml --delete
    """
    from remuda.manager.registration.runner_entries import Selection
    from remuda.manager.registration.runner_entries import verify as ask

    results = asyncio.run(ask(config.absolute(), Selection(name=name, token=token, url=url), delete=delete))
    for one in results:
        called = one.runner.name or one.runner.short
        print(f"{called} ({one.runner.short}): {'is known there' if one.is_known else one.problem}")
    return Exit.SUCCESS if all(one.is_known for one in results) else Exit.FAILURE


def unregister(*, config: Config, name: Name = "", token: Token = "", url: Url = "", all_runners: All = False) -> None:
    """Take runners off their servers, and out of the file.

    Of a runner that was created on the server (glrt- token) only this manager goes; the runner stays, for other
    managers. One that its server does not know any more goes out of the file, too.

    Try:

        remuda manager unregister --config config.toml --name builder
        remuda manager unregister --config config.toml --url https://gitlab.example.com --token glrt-...
        remuda manager unregister --config config.toml --all-runners
    """
    from remuda.manager.registration.runner_entries import unregister as remove

    for one in asyncio.run(remove(config.absolute(), _chosen(name, token, url, all_runners))):
        print(f"{one.name or one.short} ({one.short}) is off {one.url} and out of {config}")


def reset_token(
    *,
    config: Config,
    name: Name = "",
    token: Token = "",
    url: Url = "",
    all_runners: All = False,
    pat: Annotated[
        str, Parameter(help="A person's token, where the runner's own does not count any more.", env_var="PAT")
    ] = "",
) -> None:
    """Have new tokens made for runners, and put them into the file; the old ones end.

    The manager renews by itself what ends by itself. A manager that runs finds the new token in the file.

    Try:

        remuda manager reset-token --config config.toml --name builder
        PAT=glpat-... remuda manager reset-token --config config.toml --all-runners
    """
    from remuda.manager.registration.runner_entries import reset_tokens

    chosen = _chosen(name, token, url, all_runners)
    for one in asyncio.run(reset_tokens(config.absolute(), chosen, personal=pat)):
        print(f"{one.name or one.short} has a new token ({one.short}), which is in {config}")


def _chosen(name: str, token: str, url: str, all_runners: bool) -> "Selection":
    from remuda.manager.registration.runner_entries import Selection

    chosen = Selection(name=name, token=token, url=url, all=all_runners)
    if chosen.is_empty:
        raise BadInputError("which runner? Give --name, --token or --all-runners; `remuda manager list` shows them")
    return chosen
