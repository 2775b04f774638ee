"""What switching to Remuda would change, read from an existing gitlab-runner configuration: line by line, then advice.

Decides nothing about keys itself: the facts are those of `keys`, the problems those that the reader of the file would
have, and what stands in a plugin's settings is judged by what the plugin says of them. Pure but for who looks for
plugins. `remuda manager doctor` prints it. The file is only read.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from remuda.manager.config.keys.fact import Verdict
from remuda.manager.config.keys.table import Finding, walk
from remuda.manager.config.lines import find_lines, line_of
from remuda.manager.config.load import Remark, inspect
from remuda.manager.config.plugin_checks import Look, Use, uses
from remuda.manager.config.plugin_schema import mismatches
from remuda.manager.config.values import WITH_MACHINES, ManagerConfig


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one key."""

    line: int | None
    key: str
    """Such as `runners[0].docker.image`."""
    verdict: str
    about: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    diagnoses: tuple[Diagnosis, ...] = ()
    problems: tuple[Remark, ...] = ()
    """Why Remuda would not start with this file."""
    advice: tuple[str, ...] = ()
    """What to do, or to know, before switching."""

    def count(self, verdict: Verdict) -> int:
        return sum(one.verdict == verdict for one in self.diagnoses)


def examine(
    text: str, *, file: str, environment: Mapping[str, str], look: Callable[[str], Look] = lambda _: Look()
) -> Report:
    """Look a file's text through; `look` looks for a plugin, and asks it."""
    inspection = inspect(text, file=file, environment=environment)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return Report(problems=inspection.problems)
    lines = find_lines(text)
    used = uses(document)
    looks = {plugin: look(plugin) for plugin in dict.fromkeys(use.plugin for use in used)}
    settings = {f"{use.where}.plugin_config": _settings(use, looks[use.plugin], lines) for use in used}
    diagnoses: list[Diagnosis] = []
    for finding in walk(document):
        if known := settings.get(finding.where):
            diagnoses += known
        elif not _is_header(finding):
            diagnoses.append(_diagnosis(finding, lines))
    return Report(
        diagnoses=tuple(sorted(diagnoses, key=lambda one: one.line or 0)),
        problems=inspection.problems,
        advice=(*_advice(document, inspection.config), *_about_plugins(looks)),
    )


def _settings(use: Use, seen: Look, lines: Mapping[str, int]) -> list[Diagnosis]:
    """Each of a plugin's settings, and what is missing; none where the plugin does not say what it knows."""
    if seen.schema is None or use.settings is None:
        return []
    where = f"{use.where}.plugin_config"
    wrong = {f"{where}.{key}" if key else where: text for key, text in mismatches(use.settings, seen.schema)}
    found = {f"{where}.{key}": "" for key in use.settings}
    # What is wrong deep in a setting stands for the whole of it.
    deep = {key for key in found for one in wrong if one.startswith((f"{key}.", f"{key}["))}
    found = {key: text for key, text in found.items() if key not in deep} | wrong
    return [
        Diagnosis(
            line=line_of(key, lines),
            key=key,
            verdict=str(Verdict.REFUSED if text else Verdict.WORKS),
            about=f"the plugin {use.plugin} refuses it: {text}" if text else f"a setting of the plugin {use.plugin}",
        )
        for key, text in found.items()
    ]


def _about_plugins(looks: Mapping[str, Look]) -> Iterator[str]:
    for seen in looks.values():
        if seen.problem:
            yield f"on this host {seen.problem}. Its settings were not looked at"


def _diagnosis(finding: Finding, lines: Mapping[str, int]) -> Diagnosis:
    return Diagnosis(
        line=line_of(finding.where, lines),
        key=finding.where,
        verdict=str(finding.fact.verdict),
        about=finding.about,
    )


def _is_header(finding: Finding) -> bool:
    """Whether it is a section whose keys are told one by one."""
    return not finding.is_foreign and not finding.fact.is_open and isinstance(finding.value, Mapping)


def _advice(document: Mapping[str, Any], config: ManagerConfig | None) -> Iterator[str]:
    """What a person should think of; empty runners give none."""
    runners = [one for one in document.get("runners") or () if isinstance(one, Mapping)]
    yield (
        "let gitlab-runner finish its jobs first (SIGQUIT), and stop it: two managers with one configuration both take "
        "jobs, and Remuda does not find jobs that gitlab-runner has begun"
    )
    yield (
        "keep the file .runner_system_id beside the configuration: with it the server knows Remuda as the same manager"
    )
    executors = {str(one.get("executor", "")) for one in runners}
    if executors & {"shell", "custom"} and any(not one.get("builds_dir") for one in runners):
        yield (
            "working directories are made anew: Remuda's are in its own folder, gitlab-runner's builds can be removed "
            "once everything works"
        )
    if any(one.get("executor") == "shell" for one in runners):
        yield (
            "jobs run as the user that starts the manager; gitlab-runner's packages use the user gitlab-runner. Start "
            "Remuda as that user, or as root with run_as in [runners.remuda]"
        )
    if any(_table(one, "cache") == {} or not _table(one, "cache").get("Type") for one in runners):
        yield "caches in folders are not taken over: the first jobs fill them again; caches in a bucket are"
    if executors & WITH_MACHINES and (config is None or not all(one.remuda.machines for one in config.runners)):
        yield (
            "the plugin that creates machines has to be installed: remuda plugin list says whether it is. Machines "
            "that gitlab-runner has created are not taken over; let it remove them, or they cost money until somebody "
            "does"
        )
    if "docker+machine" in executors:
        yield (
            "machines of Docker Machine are created by the plugin docker-machine, which runs the command of that name "
            "with the same driver and options; machines that exist already can be listed in [[runners.remuda.machines]]"
        )
    if "shutdown_timeout" in document:
        yield "how long SIGQUIT waits is drain_timeout of [remuda], two hours where nothing is said"
    if any("token_expires_at" in one and not str(one["token_expires_at"]).startswith("0001") for one in runners):
        yield "a runner's token ends: the manager must be able to write the file to put in the new one"
    if document.get("listen_address"):
        yield "metrics keep gitlab-runner's names and labels, so dashboards go on working"


def _table(owner: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = owner.get(key)
    return found if isinstance(found, Mapping) else {}
