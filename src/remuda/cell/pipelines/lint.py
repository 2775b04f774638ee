"""Checks a pipeline file without creating a pipeline: its mistakes, or its jobs, included files and merged text."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.pipeline import (
    Component,
    ComponentAddress,
    Facts,
    Mistake,
    Pipeline,
    PipelineError,
    SourceProblem,
    Sources,
    compile_pipeline,
    merge_yaml,
)


class Included(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the pipeline file includes, directly or through other included files."""

    kind: str
    """local, file, remote, component or template: GitLab's words."""
    location: str
    project: str = ""
    ref: str | None = None


class Linted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check: the compiled file and its merged text, or its mistakes. Also lists the included files."""

    compiled: Pipeline | None = None
    mistakes: tuple[Mistake, ...] = ()
    warnings: tuple[Mistake, ...] = ()
    merged: str | None = None
    included: tuple[Included, ...] = ()


def lint(text: str, *, file: str, facts: Facts, sources: Sources, inputs: Mapping[str, Any]) -> Linted:
    """Compile a pipeline file and collect the files that it includes. Mistakes are part of the result, not raised."""
    recording = _RecordingSources(sources)
    try:
        compiled = compile_pipeline(text, file=file, facts=facts, sources=recording, inputs=inputs)
        merged = merge_yaml(text, file=file, facts=facts, sources=recording, inputs=inputs)
    except PipelineError as error:
        return Linted(mistakes=error.errors, warnings=error.warnings, included=tuple(recording.included))
    return Linted(compiled=compiled, warnings=compiled.warnings, merged=merged, included=tuple(recording.included))


class _RecordingSources(Sources):
    """Passes requests for included files on to `Sources`, and records in `included` which files were found."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.included: dict[Included, None] = {}

    def _note(self, content: object, **included: Any) -> None:
        if content is not None and not isinstance(content, SourceProblem):
            self.included[Included(**included)] = None

    def local(self, path: str) -> str | SourceProblem | None:
        content = self._sources.local(path)
        self._note(content, kind="local", location=path)
        return content

    def step_definition(self, path: str) -> str | None:
        return self._sources.step_definition(path)

    def local_glob(self, pattern: str) -> Sequence[str]:
        return self._sources.local_glob(pattern)

    def project(self, project: str, ref: str | None, file: str) -> str | SourceProblem:
        content = self._sources.project(project, ref, file)
        self._note(content, kind="file", location=file, project=project, ref=ref)
        return content

    def project_glob(self, project: str, ref: str | None, pattern: str) -> Sequence[str]:
        return self._sources.project_glob(project, ref, pattern)

    def remote(self, url: str, *, cache_seconds: int = 0) -> str | SourceProblem:
        content = self._sources.remote(url, cache_seconds=cache_seconds)
        self._note(content, kind="remote", location=url)
        return content

    def component(self, address: ComponentAddress) -> Component | SourceProblem:
        content = self._sources.component(address)
        self._note(content, kind="component", location=str(address))
        return content

    def template(self, name: str) -> str | SourceProblem:
        content = self._sources.template(name)
        self._note(content, kind="template", location=name)
        return content
