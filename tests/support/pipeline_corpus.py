"""Reads the corpus of pipeline files, `tests/interop/corpus`, and what GitLab makes of each file.

`topic/name.yml` is a pipeline file and `topic/name.expect.yml` beside it has these keys:

`about`
:   The project and the form that the file stands for.

`why`
:   For a file that is refused or has warnings: the reason, for the reference page.

`differs`
:   How Remuda differs from GitLab on purpose; then the expectation is Remuda's result.

`files`, `projects`, `remotes`, `components`
:   What the file can include. `files` are also the files of the repository for `rules:exists`.

`mistakes`, `warnings`
:   All mistakes or warnings, each as `LINE KEY`, or `FILE:LINE KEY` for an included file.

`events`
:   A list of events (`event`: push, branch, tag, merge_request, schedule ...; optionally `ref`, `variables`,
    `predefined`, `changed`, `exists`, `inputs`). Each has the expected `jobs` by name or their `count`, `none: true` if
    no pipeline is created, or `mistakes`. `pipeline` has expected fields of the pipeline itself.

A job is written as `STAGE`, `STAGE WHEN`, or with ` may-fail` after that if its failure is allowed, each with
` <- NEED & NEED` if it has needs (` <-` alone: an empty list). A map has this text as `is`, and expected fields of the
job spec beside it: of maps only the given keys are compared."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from remuda.pipeline import Component, Facts, JobSpec, MemorySources, Mistake, SourceProblem
from remuda.pipeline.templates import find_template

FOLDER = Path(__file__).parents[1] / "interop" / "corpus"
PIPELINE_FILE = ".gitlab-ci.yml"
MERGE_REQUEST = {
    "CI_MERGE_REQUEST_IID": "7",
    "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "feature",
    "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
    "CI_MERGE_REQUEST_EVENT_TYPE": "detached",
}
PROJECT = {
    "CI_PROJECT_PATH": "acme/widget",
    "CI_PROJECT_NAME": "widget",
    "CI_PROJECT_NAMESPACE": "acme",
    "CI_PROJECT_ROOT_NAMESPACE": "acme",
    "CI_SERVER_FQDN": "ci.example",
    "CI_SERVER_HOST": "ci.example",
}
_REF_OF_EVENT = {"branch": "feature", "merge_request": "feature", "tag": "v1.2.0"}
_SOURCE_OF_EVENT = {"branch": "push", "tag": "push", "merge_request": "merge_request_event"}


class CorpusSources(MemorySources):
    """Provides the files of an expectation from memory, and the templates that are part of Remuda."""

    def template(self, name: str) -> str | SourceProblem:
        return find_template(name, "", lambda address: SourceProblem(reason=f"{address} is not available"), hint="")


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event for which a file is compiled, and the expected result."""

    event: str = "push"
    ref: str = ""
    variables: dict[str, str] = {}
    predefined: dict[str, str] = {}
    changed: list[str] | None = None
    exists: list[str] | None = None
    inputs: dict[str, Any] = {}
    jobs: dict[str, Any] | None = None
    count: int | None = None
    none: bool = False
    mistakes: list[str] = []
    pipeline: dict[str, Any] = {}

    def facts(self, files: Mapping[str, str]) -> Facts:
        """Return the facts of the event. `files`: the files of the repository, unless the event has `exists`."""
        paths = self.exists if self.exists is not None else [PIPELINE_FILE, *files]
        is_merge_request = self.event == "merge_request"
        return Facts(
            ref=self.ref or _REF_OF_EVENT.get(self.event, "main"),
            is_tag=self.event == "tag",
            source=_SOURCE_OF_EVENT.get(self.event, self.event),
            predefined={**PROJECT, **(MERGE_REQUEST if is_merge_request else {}), **self.predefined},
            variables=self.variables,
            changed_files=None if self.changed is None else frozenset(self.changed),
            files={path: f"id of {path}" for path in paths},
        )


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What GitLab makes of a pipeline file."""

    about: str
    why: str = ""
    differs: str = ""
    files: dict[str, str] = {}
    projects: dict[str, dict[str, str]] = {}
    remotes: dict[str, str] = {}
    components: dict[str, Component] = {}
    mistakes: list[str] = []
    warnings: list[str] = []
    events: list[Event] = []

    def sources(self) -> CorpusSources:
        return CorpusSources(self.files, projects=self.projects, remotes=self.remotes, components=self.components)

    @property
    def is_local(self) -> bool:
        """True if the file needs nothing but the files of its repository."""
        return not (self.projects or self.remotes or self.components)


class CorpusFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the corpus with its expectation. `name` is `topic/name`."""

    name: str
    text: str
    expectation: Expectation

    @property
    def texts(self) -> list[str]:
        """The text of the file and of all files that it can include."""
        expected = self.expectation
        projects = [text for files in expected.projects.values() for text in files.values()]
        components = [component.text for component in expected.components.values()]
        return [self.text, *expected.files.values(), *projects, *expected.remotes.values(), *components]


def read_corpus() -> list[CorpusFile]:
    """Read all files of the corpus. Raises `msgspec.ValidationError` if an expectation has an unknown key."""
    return [_read(path) for path in sorted(FOLDER.glob("*/*.yml")) if not path.name.endswith(".expect.yml")]


def _read(path: Path) -> CorpusFile:
    expected = yaml.safe_load(path.with_suffix(".expect.yml").read_text())
    # Bytes, because a byte order mark and the line ends are part of some files.
    return CorpusFile(
        name=str(path.relative_to(FOLDER).with_suffix("")),
        text=path.read_bytes().decode(),
        expectation=msgspec.convert(expected, Expectation),
    )


def describe_job(job: JobSpec, names: Container[str]) -> str:
    """Write stage, `when`, `allow_failure` and needs of a job as the expectations do. `names`: the jobs of the
    pipeline; optional needs of others are left out."""
    words = [job.stage]
    if job.when != "on_success":
        words.append(job.when)
    if job.allow_failure:
        words.append("may-fail")
    if job.needs is not None:
        words.append("<-")
        words.append(" & ".join(need.job for need in job.needs if need.job in names))
    return " ".join(words).strip()


def describe_mistake(mistake: Mistake, prefix: str = "") -> str:
    """Write place and key of a mistake as the expectations do. `prefix`: removed from the beginning of the file."""
    file = mistake.file.removeprefix(prefix)
    place = str(mistake.line) if file == PIPELINE_FILE else f"{file}:{mistake.line}"
    return f"{place} {mistake.key}".strip()


def find_difference(expected: Any, actual: Any, path: str = "") -> str:
    """Return where `actual` differs from `expected`, or an empty text. Of a map only the expected keys count."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key, value in expected.items():
            if key not in actual:
                return f"{path}:{key} is absent"
            if difference := find_difference(value, actual[key], f"{path}:{key}"):
                return difference
        return ""
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        differences = (
            find_difference(*pair, f"{path}[{index}]") for index, pair in enumerate(zip(expected, actual, strict=True))
        )
        return next(filter(None, differences), "")
    return "" if expected == actual else f"{path} is {actual!r}, not {expected!r}"
