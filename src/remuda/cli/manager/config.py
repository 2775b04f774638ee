"""`remuda manager check|doctor|schema`: check and describe a configuration file, without starting a manager."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.cli.options import ConfigToml, Output
from remuda.cli.render.listing import print_json
from remuda.lib.exits import BadInputError, Exit
from remuda.localrun.render.words import on_one_line

if TYPE_CHECKING:
    from remuda.manager.config.values import ManagerConfig, Remark

_ON_THIS_MACHINE = ("shell", "docker")
"""Executors whose jobs have their agent on the manager's machine."""
_ORDER = ("refused", "unknown", "ignored", "differs", "works")


def check(*, config: ConfigToml, output: Output = "text") -> int:
    """Check whether the manager accepts a configuration file, and print all problems and warnings with their lines.

    Exit code 1 if the manager does not accept it. Environment variables that url and token refer to must be set, as for
    a start. Plugins on this host are asked about their settings; their answers are warnings.

    Try:

        remuda manager check --config config.toml
        remuda manager check --config config.toml --output json
    """
    from remuda.manager.config.load import inspect_file
    from remuda.manager.config.plugin_checks import warn_of_plugins

    text = _text(config)
    result = inspect_file(text, config, environment=os.environ)
    own = [*_check_mode(config), *_check_code_access(result.config, text)]
    warnings = [*result.warnings, *warn_of_plugins(text), *own]
    if output == "json":
        print_json(
            {
                "usable": not result.problems,
                "problems": [{"line": remark.line, "message": remark.text} for remark in result.problems],
                "warnings": [{"line": remark.line, "message": remark.text} for remark in warnings],
            }
        )
    else:
        for kind, remarks in (("problem", result.problems), ("warning", warnings)):
            for remark in remarks:
                print(f"{kind}: {on_one_line(remark.in_file(str(config)))}")
        if not result.problems:
            print(f"{config}: can be used")
    return Exit.FAILURE if result.problems else Exit.SUCCESS


def doctor(*, config: ConfigToml, output: Output = "text") -> int:
    """Examine a configuration of gitlab-runner: which keys work, differ, have no effect, or are refused.

    Prints one line for every key; then why Remuda would not start with the file, if so, and advice for the switch. The
    file is only read, and values are not printed. Plugins on this host are asked about their settings. Exit code 1
    if Remuda would not start with the file.

    Try:

        remuda manager doctor --config /etc/gitlab-runner/config.toml
        remuda manager doctor --config /etc/gitlab-runner/config.toml --output json
    """
    from remuda.manager.config.doctor import examine
    from remuda.manager.config.plugin_checks import look_at

    report = examine(_text(config), file=str(config), environment=os.environ, look=look_at)
    if output == "json":
        print_json(report)
        return Exit.FAILURE if report.problems else Exit.SUCCESS
    for entry in report.diagnoses:
        about = "" if entry.verdict == "works" else f": {entry.about}"
        print(on_one_line(f"{entry.line or '-':>4}  {entry.verdict:<8}  {entry.key}{about}"))
    counts = [f"{sum(entry.verdict == word for entry in report.diagnoses)} {word}" for word in _ORDER]
    print(f"\n{len(report.diagnoses)} keys: {', '.join(counts)}")
    for problem in report.problems:
        print(f"problem: {on_one_line(problem.in_file(str(config)))}")
    for advice in report.advice:
        print(f"advice: {advice}")
    if report.problems:
        print("Remuda would not start with this file")
    elif any(entry.verdict == "refused" for entry in report.diagnoses):
        print("Remuda can use this file, but a plugin that refuses a setting provides no machines")
    else:
        print("Remuda can use this file")
    return Exit.FAILURE if report.problems else Exit.SUCCESS


def schema() -> None:
    """Print a JSON schema of config.toml, for editors and programs that write such files.

    Try:

        remuda manager schema > config.schema.json
    """
    from remuda.manager.config.json_schema import build_schema

    print_json(build_schema())


def _check_mode(config: Path) -> "list[Remark]":
    from remuda.manager.config.values import Remark

    if not config.stat().st_mode & 0o077:
        return []
    return [Remark(text=f"others than its owner can read the tokens in it; correct that with: chmod 600 {config}")]


def _check_code_access(config: "ManagerConfig | None", text: str) -> "list[Remark]":
    """Return a warning for each runner whose job users cannot read the code of Remuda's own steps. `text`: the content
    of the configuration file, for line numbers."""
    from remuda.localrun.isolation import find_closed_code
    from remuda.manager.config.lines import find_lines, line_of
    from remuda.manager.config.values import Remark

    keys = [
        f"runners[{index}].remuda.{'first_uid' if runner.remuda.first_uid else 'run_as'}"
        for index, runner in enumerate(config.runners if config else ())
        if runner.executor in _ON_THIS_MACHINE and (runner.remuda.first_uid or runner.remuda.run_as)
    ]
    if not keys or (closed := find_closed_code()) is None:
        return []
    why = (
        f"{closed} is closed to others, so the users of jobs cannot read Remuda's code; its own steps fail in a sandbox"
    )
    what_to_do = "install Remuda and its Python where every user can read them, for example below /opt"
    lines = find_lines(text)
    return [Remark(line=line_of(key, lines), text=f"{key}: {why}; {what_to_do}") for key in keys]


def _text(config: Path) -> str:
    try:
        return config.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInputError(f"{config}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{config}: cannot be read: {error}") from None
