"""`remuda plugin`: installs, lists, creates and checks fleeting plugins, which create machines for jobs."""

import json
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from remuda.cli.options import Output
from remuda.lib import event_loop
from remuda.lib.exits import BadInputError, CommandError, Exit

if TYPE_CHECKING:
    from remuda.fleeting.conformance import Result, Trial
    from remuda.fleeting.plugin_search import FoundPlugin
    from remuda.fleeting.port import Connector

FREE_INSTANCES = 2
"""The largest number of instances that `check` creates without `--yes`."""
_MARKS = {"passed": "ok    ", "failed": "FAILED", "noted": "note  "}


def install(
    *references: Annotated[str, Parameter(help="NAME[:VERSION], REGISTRY/REPOSITORY/NAME[:VERSION], or a file.")],
    config: Annotated[
        Path | None, Parameter(help="Install the missing plugins of the runners in this config.toml.")
    ] = None,
    upgrade: Annotated[
        bool, Parameter(negative="", help="Look for a newer version even if a matching version is installed.")
    ] = False,
    replace: Annotated[
        bool, Parameter(negative="", help="Replace an installed plugin that has the same version and other content.")
    ] = False,
) -> None:
    """Install plugins from a registry or a file into the plugin folder: FLEETING_PLUGIN_PATH, or
    ~/.config/fleeting/plugins.

    `aws` means gitlab-org/fleeting/plugins/aws at registry.gitlab.com; write other registries in full. A VERSION is
    latest (default), 1, 1.2, 1.2.3 or 1.2.3-rc.1. A file is a program that answers `version`, or a tar archive that
    contains plugin/plugin.

    An installed version is not changed; a file with the same version and other content is refused unless --replace is
    given. A manager uses a new version from the next start of the plugin on. Credentials are those of `docker login`.
    gitlab-runner uses the same folder. A runner uses the plugin with `plugin = "aws:1"` in its [runners.autoscaler].

    Try:

        remuda plugin install aws:1
        remuda plugin install registry.example.com/team/mine:latest --upgrade
        remuda plugin install --config config.toml
        remuda plugin install ./fleeting-plugin-mine --replace
    """
    from remuda.fleeting.errors import PermanentError, TemporaryError

    names = [*references, *(_read_plugins(config) if config is not None else [])]
    if not names:
        if config is None:
            raise BadInputError("nothing to install; name a plugin, or give --config")
        sys.stdout.write(f"{config} names no plugin\n")
        return
    for reference in dict.fromkeys(names):
        try:
            _install(reference, is_upgrading=upgrade, is_replacing=replace)
        except PermanentError as error:
            raise BadInputError(str(error)) from None
        except TemporaryError as error:
            raise CommandError(f"{error}; try again later") from None


def list_plugins(*, output: Output = "text") -> None:
    """List available plugins: installed ones, those on PATH, and those of Python distributions of this Python.

    They are searched in this order: `plugin = "aws"` in config.toml means the highest installed version, else
    fleeting-plugin-aws on PATH, else that of a distribution. For "fleeting-plugin-aws", PATH comes first. "aws:1.2"
    means an installed version only. "/opt/aws" is the path of a program. A * in the column used marks the program that
    a runner uses if config.toml has the name without a version. A version of ? means that the program does not report
    one.

    Try:

        remuda plugin list
        remuda plugin list --output json
        FLEETING_PLUGIN_PATH=/srv/plugins remuda plugin list
    """
    from remuda.fleeting.plugin_search import list_plugins as find_plugins
    from remuda.fleeting.plugin_search import plugin_folder
    from remuda.localrun.render.columns import align

    rows = [
        {
            "name": plugin.name,
            "version": plugin.version or _ask_version(plugin),
            "where": plugin.where.value,
            "is_used": _program_of(plugin.name) == str(plugin.program.absolute()),
            "program": str(plugin.program),
        }
        for plugin in find_plugins()
    ]
    if output == "json":
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    elif not rows:
        sys.stdout.write(f"There are no plugins: none in {plugin_folder()}, none on PATH\n")
    else:
        heads = ("used", "name", "version", "where", "program")
        lines = [("*" if row["is_used"] else "", *(str(row[head]) for head in heads[1:])) for row in rows]
        sys.stdout.write("\n".join(align([heads, *lines])) + "\n")


def new(
    name: Annotated[str, Parameter(help="Name of the plugin: lower-case letters, digits and -.")],
    /,
    *,
    language: Annotated[Literal["python", "go"], Parameter(help="Programming language.")] = "python",
    folder: Annotated[Path | None, Parameter(help="Folder to write to [default: fleeting-plugin-NAME].")] = None,
) -> None:
    """Create a plugin that makes machines for jobs: a working program with a README and tests, as a starting point.

    Its machines are folders of this computer. Replace them by your own kind of machine in src/.../provider.py or in
    provider.go. `remuda docs write-a-plugin` describes this step by step.

    Try:

        remuda plugin new cloud
        remuda plugin check fleeting-plugin-cloud/fleeting-plugin-cloud
        remuda plugin new cloud --language go --folder ~/plugins/cloud
    """
    from remuda.fleeting.plugin_search import PREFIX
    from remuda.fleeting.templates import files, is_name

    name = name.removeprefix(PREFIX)
    if not is_name(name):
        raise BadInputError(f"{name}: a plugin's name has lower-case letters, digits and -, and begins with a letter")
    target = folder or Path(f"fleeting-plugin-{name}")
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise BadInputError(f"{target} exists already; remove it, or give another --folder")
        for file in files(name, language, python=sys.executable):
            path = target / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text)
            if file.is_program:
                path.chmod(0o755)
    except OSError as error:
        raise BadInputError(f"{target} cannot be written: {error.strerror}; give another --folder") from None
    sys.stdout.write(f"{target} is written; its README.md says how to try it out\n")
    if used := _program_of(name):
        sys.stdout.write(f'plugin = "{name}" means {used} at present; write its path to use this one\n')


def check(
    program: Annotated[str, Parameter(help="Path of the plugin's program, or its NAME as in config.toml.")],
    /,
    *,
    config: Annotated[
        Path | None,
        Parameter(
            help="JSON or TOML file with the keys of plugin_config, or with the keys plugin_config and "
            "connector_config."
        ),
    ] = None,
    instances: Annotated[int, Parameter(help="Number of instances to create.")] = 1,
    boot_seconds: Annotated[
        float,
        Parameter(help="Maximum time for an instance to start, and to be deleted. 0 means that it need not start."),
    ] = 300.0,
    connect: Annotated[bool, Parameter(negative="", help="Log in to an instance with SSH and run a command.")] = False,
    yes: Annotated[bool, Parameter(negative="", help="Allow more than two instances.")] = False,
    output: Output = "text",
) -> None:
    """Test a plugin, in any language, with everything that a host (a program that starts plugins, such as the runner
    manager) does: handshake, configuration, concurrent calls, Ctrl-C, a kill.

    INSTANCES ARE CREATED at the provider and deleted again, which may cost money. Without --yes, at most two are
    created. Existing instances are not touched, but nobody else may use the group meanwhile.

    Each check is one line: ok; note, for a defect that hosts tolerate; or FAILED, with what was expected, what happened
    and what to do. Exit codes: 0 all checks passed, 1 a check failed, 2 there is nothing to check.

    Try:

        remuda plugin check ./fleeting-plugin-cloud
        remuda plugin check ./fleeting-plugin-cloud --config cloud.toml --instances 2
        remuda plugin check aws --config aws.json --connect --boot-seconds 600

    with a cloud.toml such as

        [plugin_config]
        folder = "/srv/machines"
        [connector_config]
        username = "ci"
        key_path = "/etc/remuda/key"
    """
    from dataclasses import asdict

    from remuda.fleeting.conformance import Outcome, Trial, names
    from remuda.fleeting.errors import PermanentError
    from remuda.fleeting.plugin_search import PREFIX, find_program

    if instances < 1 or boot_seconds < 0:
        raise BadInputError("--instances has to be 1 or more, --boot-seconds 0 or more")
    if instances > FREE_INSTANCES and not yes:
        raise BadInputError(
            f"--instances {instances}: they are created at the provider, which may cost money; confirm with --yes"
        )
    plugin_config, connector = _configuration(config) if config is not None else ({}, {})
    try:
        path = find_program(program)
        trial = Trial(
            program=path,
            config=plugin_config,
            connector=_connector(connector),
            instances=instances,
            boot_seconds=boot_seconds,
            is_connecting=connect,
            say=_say_waiting,
        )
    except PermanentError as error:
        raise BadInputError(str(error)) from None
    if output == "text":
        sys.stdout.write(f"{path}: {instances} instance(s) will be created and deleted; that may cost money\n")
        used = _program_of(Path(path).name.removeprefix(PREFIX)) if Path(path).name.startswith(PREFIX) else path
        if used not in ("", path):
            short = Path(path).name.removeprefix(PREFIX)
            sys.stdout.write(f'plugin = "{short}" means another program, {used}; write the path to use this one\n')
    results = event_loop.run(_check(trial, is_shown=output == "text"))
    failed = sum(result.outcome is Outcome.FAILED for result in results)
    tried = {result.name for result in results}
    left_out = [name for name in names(trial) if name not in tried]
    if output == "json":
        checks = [asdict(result) for result in results]
        document = {"program": path, "passed": not failed, "checks": checks, "not_tried": left_out}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    elif failed:
        rest = f"; the other {len(left_out)} were not tried, because they depend on what failed" if left_out else ""
        sys.stdout.write(f"{failed} of {len(results)} checks failed{rest}\n")
    else:
        sys.stdout.write("All checks passed\n")
    if failed:
        sys.exit(Exit.FAILURE)


async def _check(trial: "Trial", *, is_shown: bool) -> "list[Result]":
    from remuda.fleeting.conformance import try_out

    results = []
    async with aclosing(try_out(trial)) as trying:  # so that instances are deleted when it is interrupted
        async for result in trying:
            results.append(result)
            if is_shown:
                print(_lines(result), flush=True)
    return results


def _say_waiting(line: str) -> None:
    """Print a line about a long wait. To stderr, because stdout may be JSON."""
    print(f"        {line}", file=sys.stderr, flush=True)


def _lines(result: "Result") -> str:
    more = []
    if result.happened:
        more = [f"expected: {result.expected}", f"happened: {result.happened}", f"to do: {result.to_do}"]
    if result.logged:
        more += ["the plugin logged meanwhile:", *(f"  {line}" for text in result.logged for line in text.splitlines())]
    return "\n          ".join([f"{_MARKS[result.outcome]}  {result.name}", *more])


def _install(text: str, *, is_upgrading: bool, is_replacing: bool) -> None:
    from remuda.cli.plugin_source import RegistrySource, unpack
    from remuda.fleeting.install import install as install_from_registry
    from remuda.fleeting.install import install_file, looks_like_file
    from remuda.fleeting.plugin_search import Where, find_installed, find_program, places, plugin_folder
    from remuda.fleeting.references import parse_reference

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    folder = plugin_folder()
    if places(text)[0] is Where.PATH and (Path(text).is_file() or Where.INSTALLED not in places(text)):
        done = install_file(Path(text).expanduser(), unpack, folder, say=say, is_replacing=is_replacing)
    elif looks_like_file(text) and Path(text).is_file():
        raise BadInputError(f"{text} means a plugin in a registry; write ./{text} for the file in this folder")
    else:
        reference = parse_reference(text)
        if not is_upgrading and (program := find_installed(reference, folder)) is not None:
            say(f"{text} is already installed: {program}")
            return
        done = install_from_registry(reference, RegistrySource(reference), unpack, folder, say=say)
    state = "is installed" if done.is_new else "is already installed"
    say(f"{done.reference.place} {done.version.text} {state}: {done.program}")
    used = find_program(done.reference.short)
    if used != str(done.program):
        say(f'plugin = "{done.reference.short}" means {used}; add the version to use this one')


def _read_plugins(file: Path) -> list[str]:
    """Return the plugins of a config.toml's runners that `remuda plugin install` may install or upgrade: those missing
    or in the plugin folder. Prints the path of a plugin that is found elsewhere, such as on PATH."""
    from remuda.fleeting.errors import PermanentError
    from remuda.fleeting.plugin_search import find_program, plugin_folder

    document = _table(file)
    runners = document.get("runners")
    names = []
    for runner in runners if isinstance(runners, list) else []:
        section = runner.get("autoscaler") if isinstance(runner, dict) else None
        plugin = section.get("plugin") if isinstance(section, dict) else None
        if not isinstance(plugin, str) or not plugin:
            continue
        try:
            program = Path(find_program(plugin))
        except PermanentError:
            names.append(plugin)
            continue
        if program.is_relative_to(plugin_folder().absolute()):
            names.append(plugin)
        else:
            sys.stdout.write(f"{plugin} is already available: {program}\n")
    return names


def _configuration(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read `plugin_config` and `connector_config`; a file without them is the former. BadInputError for more keys."""
    document = _table(file)
    sections = ("plugin_config", "connector_config")
    if not document.keys() & set(sections):
        return document, {}
    for name in document:
        if name not in sections:
            raise BadInputError(f"{file}: there is no {name} beside {' and '.join(sections)}; is it misspelled?")
    parts = [document.get(name, {}) for name in sections]
    for name, part in zip(sections, parts, strict=True):
        if not isinstance(part, dict):
            raise BadInputError(f"{file}: {name} has to be a table")
    return parts[0], parts[1]


def _connector(settings: dict[str, Any]) -> "Connector":
    """Convert `connector_config` to connection settings, as a manager does. Raises BadInputError if one is invalid."""
    import msgspec

    from remuda.fleeting.sdk import in_words
    from remuda.manager.config.autoscaler import ConnectorConfig
    from remuda.manager.config.fleet_setup import as_connector
    from remuda.manager.errors import ConfigError

    names = ConnectorConfig.__struct_fields__
    for name in settings:
        if name not in names:
            raise BadInputError(f"connector_config: there is no setting {name}; known: {', '.join(names)}")
    try:
        return as_connector(msgspec.convert(settings, ConnectorConfig))
    except msgspec.ValidationError as error:
        raise BadInputError(f"connector_config: {in_words(str(error))}") from None
    except ValueError as error:
        raise BadInputError(f"connector_config: keepalive or timeout: {error}") from None
    except ConfigError as error:
        raise BadInputError(str(error)) from None


def _table(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        text = file.read_text()
        table = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise BadInputError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadInputError(f"{file}: {error}") from None
    if not isinstance(table, dict):
        raise BadInputError(f"{file}: has to be a table (a JSON object)")
    return table


def _program_of(name: str) -> str:
    from remuda.fleeting.errors import PermanentError
    from remuda.fleeting.plugin_search import find_program

    try:
        return find_program(name)
    except PermanentError:
        return ""


def _ask_version(plugin: "FoundPlugin") -> str:
    from remuda.fleeting.errors import PermanentError
    from remuda.fleeting.program_info import ask_version

    try:
        return ask_version(plugin.program).version
    except PermanentError:
        return "?"
