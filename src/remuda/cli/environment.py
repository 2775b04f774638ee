"""`remuda environment`: creates and checks environment plugins, which start machines or containers for jobs."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from remuda.lib import event_loop
from remuda.lib.exits import BadInputError, Exit


def new(
    name: Annotated[str, Parameter(help="Name of the plugin: lower-case letters, digits and -.")],
    /,
    *,
    folder: Annotated[Path | None, Parameter(help="Folder to write to [default: a folder with that name].")] = None,
) -> None:
    """Create an environment plugin: a working program in Python and a README, as a starting point.

    Try:

        remuda environment new cloud
        remuda environment check cloud/remuda-environment-cloud
    """
    from remuda.environments.template import files, is_name

    if not is_name(name):
        raise BadInputError(f"{name}: a plugin's name has lower-case letters, digits and -, and begins with a letter")
    target = folder or Path(name)
    texts = files(name, python=sys.executable)
    for path in (target / file_name for file_name in texts):
        if path.exists():
            raise BadInputError(f"{path} exists already; remove it, or give another --folder")
    target.mkdir(parents=True, exist_ok=True)
    for file_name, text in texts.items():
        (target / file_name).write_text(text)
    program = target / next(iter(texts))
    program.chmod(0o755)
    sys.stdout.write(f"{target} is written. Try it: remuda environment check {program}\n")


def check(
    program: Annotated[
        str, Parameter(help="Path of the plugin's program, or NAME of a program remuda-environment-NAME on PATH.")
    ],
    /,
    *,
    config: Annotated[str, Parameter(help="The `config` of the plugin as in config.toml, as a JSON object.")] = "{}",
) -> None:
    """Test an environment plugin, in any language, with all calls of a manager and a real agent.

    Prints one line for each check, with the reason if it failed. All protocol versions that the plugin and Remuda both
    support are tested. A job runs on a machine of the plugin.

    Exit codes: 0 all checks passed, 1 a check failed, 2 the program does not exist.

    Try:

        remuda environment check ./remuda-environment-cloud
        remuda environment check cloud --config '{"machines": ["one", "two"]}'
    """
    from remuda.environments.errors import PluginError
    from remuda.environments.host import find_plugin

    try:
        path = find_plugin(program)
    except PluginError as error:
        raise BadInputError(str(error)) from None
    try:
        settings = json.loads(config)
    except ValueError as error:
        raise BadInputError(f"--config: not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise BadInputError('--config: a JSON object is needed, such as \'{"machines": ["one"]}\'')
    with tempfile.TemporaryDirectory(prefix="remuda-check-") as folder:
        failed = event_loop.run(_check(path, settings, Path(folder)))
    if failed:
        sys.stdout.write(f"{failed} failed; later checks of the same protocol version were left out\n")
        sys.exit(Exit.FAILURE)
    sys.stdout.write("All checks passed\n")


async def _check(program: str, config: dict[str, Any], folder: Path) -> int:
    from remuda.environments.conformance import check_plugin

    failed = 0
    async for result in check_plugin(program, config, folder):
        failed += bool(result.problem)
        sys.stdout.write(f"FAILED  {result.name}: {result.problem}\n" if result.problem else f"ok      {result.name}\n")
        sys.stdout.flush()
    return failed
