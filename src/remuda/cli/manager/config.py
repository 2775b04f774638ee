"""`remuda manager check|doctor|schema`: check and describe a configuration file, without starting a manager."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from remuda.cli.options import ConfigToml, Output
from remuda.cli.render.listing import print_json
from remuda.lib.exits import BadInputError, Exit
from remuda.localrun.render.words import on_one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.manager.config.doctor import Diagnosis, Report
    from remuda.manager.config.values import Remark, RunnerConfig

_MEANING = {
    "refused": "Change or remove these keys",
    "unknown": "Correct or remove these keys, which have no effect",
    "ignored": "Check whether you can do without these keys, which have no effect",
    "differs": "Check whether the effect of these keys fits, which is another one than in gitlab-runner",
    "works": "These keys work as in gitlab-runner",
}
"""What to do about the keys with each verdict, the most urgent first."""
_RUNNER_NUMBER = re.compile(r"^runners\[\d+\]")


def check(*, config: ConfigToml, output: Output = "text") -> int:
    """Check whether the manager accepts a configuration file, and print all problems and warnings with their lines.

    Exit code 1 if the manager would not start with it, also because of a TLS file. Environment variables that url and
    token refer to must be set, as for a start. Warnings say what jobs would miss on this machine: key files, programs,
    users, a container engine that answers. Plugins on this machine are asked about their settings.

    Try:

        remuda manager check --config config.toml
        remuda manager check --config config.toml --output json
    """
    from remuda.manager.config.load import inspect_file
    from remuda.manager.config.plugin_checks import warn_of_plugins

    text = _text(config)
    result = inspect_file(text, config, environment=os.environ)
    missing = _check_machine(result.sound, text)
    warnings = [*result.warnings, *_check_mode(config), *warn_of_plugins(text), *missing]
    if output == "json":
        print_json(
            {
                "usable": not result.problems,
                "ready": not result.problems and not missing,
                "problems": [{"line": remark.line, "message": remark.text} for remark in result.problems],
                "warnings": [{"line": remark.line, "message": remark.text} for remark in warnings],
            }
        )
    else:
        for kind, remarks in (("problem", result.problems), ("warning", warnings)):
            for remark in remarks:
                print(f"{kind}: {on_one_line(remark.in_file(str(config)))}")
        if not result.problems and missing:
            print(f"{config}: can be used, but on this machine jobs would miss what the last warnings say")
        elif not result.problems:
            print(f"{config}: can be used")
    return Exit.FAILURE if result.problems else Exit.SUCCESS


def doctor(
    *,
    config: ConfigToml,
    only: Annotated[
        str,
        Parameter(
            help="Show only keys with these verdicts, separated by commas: refused,unknown,ignored,differs,works."
        ),
    ] = "",
    output: Output = "text",
) -> int:
    """Examine a configuration of gitlab-runner: which keys work, differ, have no effect, or are refused.

    First come the reasons why Remuda would not start with the file, and what jobs would miss on this machine; then one
    line for every key, those that need an action first, where several runners with the same key and verdict share a
    line; then advice for the switch. The file is only read, and values
    are not printed. Plugins on this machine are asked about their settings. Exit code 1 if Remuda would not start.

    Try:

        remuda manager doctor --config /etc/gitlab-runner/config.toml
        remuda manager doctor --config /etc/gitlab-runner/config.toml --only differs,ignored
        remuda manager doctor --config /etc/gitlab-runner/config.toml --output json
    """
    from remuda.manager.config.doctor import examine
    from remuda.manager.config.plugin_checks import look_at
    from remuda.manager.environments.readiness import find_missing

    verdicts = _parse_verdicts(only)
    text = _text(config)
    report = examine(text, file=str(config), environment=os.environ, look=look_at, find_missing=find_missing)
    shown = [entry for entry in report.diagnoses if entry.verdict in verdicts]
    if output == "json":
        print_json(msgspec.structs.replace(report, diagnoses=tuple(shown)))
        return Exit.FAILURE if report.problems else Exit.SUCCESS
    for problem in report.problems:
        print(f"problem: {on_one_line(problem.in_file(str(config)))}")
    for missing in report.missing:
        print(f"missing: {on_one_line(missing.in_file(str(config)))}")
    if report.problems or report.missing:
        print()
    for verdict in verdicts:
        entries = [entry for entry in shown if entry.verdict == verdict]
        if entries:
            print(f"{_MEANING[verdict]}:")
        for same in _group_by_runner(entries):
            entry, lines = same[0], [str(each.line) for each in same[1:]]
            others = f" (also in line{'s' if len(lines) > 1 else ''} {', '.join(lines)})" if lines else ""
            about = "" if verdict == "works" else f": {entry.about}"
            print(on_one_line(f"{entry.line or '-':>4}  {entry.verdict:<8}  {entry.key}{others}{about}"))
        if entries:
            print()
    counts = [f"{sum(entry.verdict == word for entry in report.diagnoses)} {word}" for word in _MEANING]
    print(f"{len(report.diagnoses)} keys: {', '.join(counts)}")
    for advice in () if only else report.advice:
        print(f"advice: {advice}")
    print(_conclude(report))
    return Exit.FAILURE if report.problems else Exit.SUCCESS


def _group_by_runner(entries: "Iterable[Diagnosis]") -> "list[list[Diagnosis]]":
    """Put those entries together that say the same about the same key of several runners."""
    groups: dict[tuple[str, str], list[Diagnosis]] = {}
    for entry in entries:
        groups.setdefault((_RUNNER_NUMBER.sub("runners", entry.key), entry.about), []).append(entry)
    return list(groups.values())


def _parse_verdicts(only: str) -> list[str]:
    """Return the chosen verdicts in the order of the output; all for an empty text."""
    chosen = {word.strip() for word in only.split(",") if word.strip()}
    for word in sorted(chosen.difference(_MEANING)):
        raise BadInputError(f"--only {word}: is no verdict; choose from {','.join(_MEANING)}")
    return [verdict for verdict in _MEANING if verdict in chosen or not chosen]


def _conclude(report: "Report") -> str:
    if report.problems:
        return "Remuda would not start with this file"
    if any(entry.verdict == "refused" for entry in report.diagnoses):
        return "Remuda can use this file, but a plugin that refuses a setting provides no machines"
    if report.missing:
        return "Remuda can use this file, but on this machine jobs would miss what is listed first"
    return "Remuda can use this file"


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


def _check_machine(runners: "Iterable[tuple[int, RunnerConfig]]", text: str) -> "list[Remark]":
    """Return what jobs of the runners would miss on this machine. `text`: the file, for line numbers."""
    from remuda.manager.config.lines import find_lines, line_of_message
    from remuda.manager.config.values import Remark
    from remuda.manager.environments.readiness import find_missing

    lines = find_lines(text)
    return [Remark(line=line_of_message(about, lines), text=about) for about in find_missing(runners)]


def _text(config: Path) -> str:
    try:
        return config.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInputError(f"{config}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{config}: cannot be read: {error}") from None
