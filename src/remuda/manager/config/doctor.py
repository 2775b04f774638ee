"""Explains how Remuda treats a gitlab-runner configuration: each key, problems, and advice for the migration. I/O:
reads login key files and TLS files, and searches for plugins through the parameter `look` of `examine`."""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from remuda.manager.config.fleet_setup import is_autoscaled
from remuda.manager.config.keys.fact import Verdict
from remuda.manager.config.keys.lookup import Finding, walk
from remuda.manager.config.lines import find_lines, line_of, line_of_message
from remuda.manager.config.load import inspect_file
from remuda.manager.config.plugin_checks import Look, Use, find_uses
from remuda.manager.config.plugin_schema import find_mismatches
from remuda.manager.config.ssh import table_of
from remuda.manager.config.values import WITH_MACHINES, ManagerConfig, Remark, RunnerConfig


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    line: int | None
    key: str
    """Such as `runners[0].docker.image`."""
    verdict: str
    about: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    diagnoses: tuple[Diagnosis, ...] = ()
    problems: tuple[Remark, ...] = ()
    """Why Remuda would not start with this file."""
    missing: tuple[Remark, ...] = ()
    """What jobs would miss on this machine."""
    advice: tuple[str, ...] = ()
    """What to do or know before switching."""

    def count(self, verdict: Verdict) -> int:
        return sum(diagnosis.verdict == verdict for diagnosis in self.diagnoses)


def examine(
    text: str,
    *,
    file: str,
    environment: Mapping[str, str],
    look: Callable[[str], Look] = lambda _: Look(),
    find_missing: Callable[[Iterable[tuple[int, RunnerConfig]]], Iterable[str]] = lambda _: (),
) -> Report:
    """Return a report on a gitlab-runner configuration: how Remuda treats each key, problems, and advice. `environment`
    has the variables for `$NAME` in it. `look` finds a plugin by name and asks it for its schema. `find_missing` has
    what jobs would miss on this machine, as texts that begin with a key."""
    inspection = inspect_file(text, Path(file), environment=environment)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return Report(problems=inspection.problems)
    lines = find_lines(text)
    uses = find_uses(document)
    looks = {plugin: look(plugin) for plugin in dict.fromkeys(use.plugin for use in uses)}
    settings = {f"{use.where}.plugin_config": _settings(use, looks[use.plugin], lines) for use in uses}
    missing = find_missing(inspection.sound)
    diagnoses: list[Diagnosis] = []
    for finding in walk(document):
        if of_plugin := settings.get(finding.where):
            diagnoses += of_plugin
        elif not _is_header(finding):
            diagnoses.append(_diagnosis(finding, lines))
    return Report(
        diagnoses=tuple(sorted(diagnoses, key=lambda diagnosis: diagnosis.line or 0)),
        problems=inspection.problems,
        missing=tuple(Remark(line=line_of_message(about, lines), text=about) for about in missing),
        advice=(*_advice(document, inspection.config), *_plugin_advice(looks)),
    )


def _settings(use: Use, seen: Look, lines: Mapping[str, int]) -> list[Diagnosis]:
    """Return a diagnosis for each setting in the `plugin_config` of `use`, and for each missing required one, by the
    plugin's schema in `seen`; an empty list if the schema is unknown. `lines` has line numbers by key."""
    if seen.schema is None or use.settings is None:
        return []
    where = f"{use.where}.plugin_config"
    wrong = {f"{where}.{key}" if key else where: text for key, text in find_mismatches(use.settings, seen.schema)}
    texts = {f"{where}.{key}": "" for key in use.settings}
    # A problem inside a setting replaces the diagnosis of the whole setting.
    deep = {key for key in texts for place in wrong if place.startswith((f"{key}.", f"{key}["))}
    texts = {key: text for key, text in texts.items() if key not in deep} | wrong
    return [
        Diagnosis(
            line=line_of(key, lines),
            key=key,
            verdict=str(Verdict.REFUSED if text else Verdict.WORKS),
            about=f"the plugin {use.plugin} refuses it: {text}" if text else f"a setting of the plugin {use.plugin}",
        )
        for key, text in texts.items()
    ]


def _plugin_advice(looks: Mapping[str, Look]) -> Iterator[str]:
    for seen in looks.values():
        if seen.problem:
            yield f"on this host {seen.problem}. Its settings were not checked"


def _diagnosis(finding: Finding, lines: Mapping[str, int]) -> Diagnosis:
    return Diagnosis(
        line=line_of(finding.where, lines),
        key=finding.where,
        verdict=str(finding.fact.verdict),
        about=finding.about,
    )


def _is_header(finding: Finding) -> bool:
    """True if the key found is a section that needs no diagnosis, because its keys have their own."""
    return not finding.is_foreign and not finding.fact.is_open and isinstance(finding.value, Mapping)


def _advice(document: Mapping[str, Any], config: ManagerConfig | None) -> Iterator[str]:
    runners = [runner for runner in document.get("runners") or () if isinstance(runner, Mapping)]
    yield (
        "let gitlab-runner finish its jobs first (SIGQUIT), and stop it: two managers with one configuration both take "
        "jobs, and Remuda does not find jobs that gitlab-runner has begun"
    )
    yield (
        "keep the file .runner_system_id beside the configuration: with it the server knows Remuda as the same manager"
    )
    executors = {str(runner.get("executor", "")) for runner in runners}
    if executors & {"shell", "custom"} and any(not runner.get("builds_dir") for runner in runners):
        yield (
            "Remuda creates new working directories in its own folder; gitlab-runner's builds can be removed once "
            "everything works"
        )
    if any(runner.get("executor") == "shell" for runner in runners):
        yield (
            "jobs run as the user that starts the manager; gitlab-runner's packages use the user gitlab-runner. Start "
            "Remuda as that user, or as root with run_as in [runners.remuda]"
        )
    if any(table_of(runner, "cache") == {} or not table_of(runner, "cache").get("Type") for runner in runners):
        yield "caches in folders are not taken over, the first jobs fill them again; caches in a bucket are taken over"
    if executors & WITH_MACHINES and (config is None or any(map(is_autoscaled, config.runners))):
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
        yield "drain_timeout of [remuda] limits how long SIGQUIT waits for jobs; the default is two hours"
    if any(
        "token_expires_at" in runner and not str(runner["token_expires_at"]).startswith("0001") for runner in runners
    ):
        yield "a runner's token expires: the manager must be able to write the new one to the file"
    if document.get("listen_address"):
        yield "metrics keep gitlab-runner's names and labels, so dashboards go on working"
