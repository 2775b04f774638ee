"""The interface that provides the texts of included files, and an implementation with files in memory.

An implementation checks what is allowed (hosts, projects) and otherwise returns a `SourceProblem`, which the compiler
reports as a mistake of the include. Calls block, so a server compiles in a thread."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from remuda.pipeline.facts import SourceProblem
from remuda.pipeline.rules.globs import match_paths

_ADDRESS = re.compile(r"(?P<host>[^/@\s]+)/(?P<project>[^@\s]+)/(?P<name>[^/@\s]+)@(?P<version>[^@\s]+)")


class ComponentAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed address of a CI/CD component: `host/group/project/name@version`."""

    host: str
    project: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.host}/{self.project}/{self.name}@{self.version}"


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a CI/CD component, and the project and commit from which its local includes are read."""

    text: str
    project: str
    ref: str
    file: str
    version: str = ""
    """The tag with its version, such as `1.4.2`; empty if the address names a branch or a commit."""


class Sources(Protocol):
    """Provides the files that a pipeline file includes. Paths have no leading slash and never leave the repository."""

    def local(self, path: str) -> str | SourceProblem | None:
        """Return the text of a file of the repository at the pipeline's commit; None if it does not exist, a
        SourceProblem if it cannot be read."""

    def step_definition(self, path: str) -> str | None:
        """Return the text of a file of the repository that may define a step of a job; None if it does not exist or
        cannot be read. The file is not a part of the pipeline file."""
        text = self.local(path)
        return text if isinstance(text, str) else None

    def local_glob(self, pattern: str) -> Sequence[str]:
        """Return the paths of the repository that match the pattern, sorted."""

    def project(self, project: str, ref: str | None, file: str) -> str | SourceProblem:
        """Return the text of a file of another project at `ref`, or on its default branch if `ref` is None; else a
        SourceProblem."""

    def project_glob(self, project: str, ref: str | None, pattern: str) -> Sequence[str]:
        """Return the paths of another project that match the pattern, sorted. If the project is not available, the
        result may be the pattern itself: a call of `project` with this path then returns the reason."""

    def remote(self, url: str, *, cache_seconds: int = 0) -> str | SourceProblem:
        """Return the text at a web address, if the address is on the allow list; else a SourceProblem. The text may be
        up to `cache_seconds` old."""

    def component(self, address: ComponentAddress) -> Component | SourceProblem:
        """Return the CI/CD component at the version in its address; else a SourceProblem."""

    def template(self, name: str) -> str | SourceProblem:
        """Return the text of a template that is part of the server; else a SourceProblem."""


class MemorySources(Sources):
    """Provides files from memory: local ones by path, those of projects by project and path, remote ones by address."""

    def __init__(
        self,
        files: Mapping[str, str] | None = None,
        *,
        projects: Mapping[str, Mapping[str, str]] | None = None,
        remotes: Mapping[str, str] | None = None,
        components: Mapping[str, Component] | None = None,
    ) -> None:
        self._files = files or {}
        self._projects = projects or {}
        self._remotes = remotes or {}
        self._components = components or {}

    def local(self, path: str) -> str | SourceProblem | None:
        return self._files.get(path)

    def local_glob(self, pattern: str) -> Sequence[str]:
        return match_paths(pattern, sorted(self._files))

    def project(self, project: str, ref: str | None, file: str) -> str | SourceProblem:
        # The key is the project's path, or "path@ref" for the files of one ref.
        files = self._projects.get(f"{project}@{ref}", self._projects.get(project))
        if files is None:
            return SourceProblem(reason=f'there is no project "{project}"', suggestion="check its path")
        if file not in files:
            return SourceProblem(reason=f'the project "{project}" has no file "{file}"', suggestion="check its path")
        return files[file]

    def project_glob(self, project: str, ref: str | None, pattern: str) -> Sequence[str]:
        files = self._projects.get(f"{project}@{ref}", self._projects.get(project))
        return [pattern] if files is None else match_paths(pattern, sorted(files))

    def remote(self, url: str, *, cache_seconds: int = 0) -> str | SourceProblem:
        if url in self._remotes:
            return self._remotes[url]
        return SourceProblem(reason="the address is not on the allow list", suggestion="ask for it to be added")

    def component(self, address: ComponentAddress) -> Component | SourceProblem:
        problem = SourceProblem(reason=f'there is no component "{address}"', suggestion="check path and version")
        return self._components.get(str(address), problem)

    def template(self, name: str) -> str | SourceProblem:
        return SourceProblem(reason="templates are not available here", suggestion="copy the file, include it locally")


def parse_address(text: str) -> ComponentAddress | None:
    """Parse the address of a CI/CD component, `host/group/project/name@version`; None if it is invalid."""
    match = _ADDRESS.fullmatch(text)
    return ComponentAddress(**match.groupdict()) if match else None
