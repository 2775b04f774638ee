"""`remuda environment`: writes and checks plugins that add a kind of environment, for their authors.

`remuda.environments.conformance` has the checks.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from remuda.lib.exits import BadInputError, Exit


def new(
    name: Annotated[str, Parameter(help="How the plugin is called: small letters, digits and -.")],
    /,
    *,
    folder: Annotated[Path | None, Parameter(help="Where to write it [default: a folder with that name].")] = None,
) -> None:
    """Write the beginning of an environment plugin: a program in Python that works as it is, and its README.

    Try:

        remuda environment new cloud
        remuda environment check cloud/remuda-environment-cloud
    """
    from remuda.environments.template import files, is_name

    if not is_name(name):
        raise BadInputError(f"{name}: a plugin's name has small letters, digits and -, and begins with a letter")
    target = folder or Path(name)
    texts = files(name, python=sys.executable)
    for path in (target / file_name for file_name in texts):
        if path.exists():
            raise BadInputError(f"{path} is there already; remove it, or give another --folder")
    target.mkdir(parents=True, exist_ok=True)
    for file_name, text in texts.items():
        (target / file_name).write_text(text)
    program = target / next(iter(texts))
    program.chmod(0o755)
    sys.stdout.write(f"{target} is written. Try it: remuda environment check {program}\n")


def check(
    program: Annotated[str, Parameter(help="Path of the plugin's program, or NAME of one on PATH.")],
    /,
    *,
    config: Annotated[str, Parameter(help="The plugin's `config`, a JSON object.")] = "{}",
) -> None:
    """Try an environment plugin out, in any language: everything that a manager will ask of it, with a real agent.

    A line for each check, and for one that is not passed what is wrong. Every protocol version that the plugin and this
    Remuda both speak is tried. A job is run on a machine of the plugin's.

    Exit code 0 when all checks are passed, 1 when not, 2 when there is nothing to check.

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
        failed = asyncio.run(_check(path, settings, Path(folder)))
    if failed:
        sys.stdout.write(f"{failed} of the checks is not passed; those behind it in its version were left out\n")
        sys.exit(Exit.FAILURE)
    sys.stdout.write("All checks are passed\n")


async def _check(program: str, config: dict[str, Any], folder: Path) -> int:
    from remuda.environments.conformance import check_plugin

    failed = 0
    async for result in check_plugin(program, config, folder):
        failed += bool(result.problem)
        sys.stdout.write(f"FAILED  {result.name}: {result.problem}\n" if result.problem else f"ok      {result.name}\n")
        sys.stdout.flush()
    return failed
