"""Where the text of included files comes from: the port the compiler asks, and its twin in memory.

Decided here: what can be asked for. Whether it is allowed (which hosts, which projects of the cell) is decided by
the implementation, which answers with a `SourceProblem`; the compiler makes a mistake of it at the include's place.
Calls are synchronous: whoever compiles does so in a thread, or has fetched before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from remuda.pipeline.facts import SourceProblem
from remuda.pipeline.rules.globs import match_paths

_ADDRESS = re.compile(r"(?P<host>[^/@\s]+)/(?P<project>[^@\s]+)/(?P<name>[^/@\s]+)@(?P<version>[^@\s]+)")


class ComponentAddress(msgspec.Struct, frozen=True, kw_only=True):
    """`host/group/project/name@version`, taken apart."""

    host: str
    project: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.host}/{self.project}/{self.name}@{self.version}"


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A component that was found: its text, and where it lives, which is where its own local includes are looked up."""

    text: str
    project: str
    ref: str
    file: str


class Sources(Protocol):
    """Files that a pipeline file may include. Paths have no leading slash and never leave the repository."""

    def local(self, path: str) -> str | SourceProblem | None:
        """A file of the repository at the pipeline's commit; None: there is no such file."""
        ...

    def local_glob(self, pattern: str) -> Sequence[str]:
        """The paths of the repository that fit, sorted."""
        ...

    def project(self, project: str, ref: str | None, file: str) -> str | SourceProblem:
        """A file of another project; without a ref, of its default branch."""
        ...

    def project_glob(self, project: str, ref: str | None, pattern: str) -> Sequence[str]:
        """The paths of another project that fit, sorted."""
        ...

    def remote(self, url: str) -> str | SourceProblem:
        """A file behind an address, if the address is on the allow list."""
        ...

    def component(self, address: ComponentAddress) -> Component | SourceProblem:
        """A component at a version."""
        ...

    def template(self, name: str) -> str | SourceProblem:
        """A template that comes with the server."""
        ...


class MemorySources(Sources):
    """Files in dicts: the repository's by path, other projects' by `project` and path, remote ones by address."""

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
        return match_paths([pattern], sorted(self._files))

    def project(self, project: str, ref: str | None, file: str) -> str | SourceProblem:
        # A project may be given once for all refs, or once per ref as "path@ref".
        found = self._projects.get(f"{project}@{ref}", self._projects.get(project))
        if found is None:
            return SourceProblem(reason=f'there is no project "{project}"', suggestion="check its path")
        if file not in found:
            return SourceProblem(reason=f'the project "{project}" has no file "{file}"', suggestion="check its path")
        return found[file]

    def project_glob(self, project: str, ref: str | None, pattern: str) -> Sequence[str]:
        found = self._projects.get(f"{project}@{ref}", self._projects.get(project)) or {}
        return match_paths([pattern], sorted(found))

    def remote(self, url: str) -> str | SourceProblem:
        if url in self._remotes:
            return self._remotes[url]
        return SourceProblem(reason="the address is not on the allow list", suggestion="ask for it to be added")

    def component(self, address: ComponentAddress) -> Component | SourceProblem:
        found = self._components.get(str(address))
        return found or SourceProblem(reason=f'there is no component "{address}"', suggestion="check path and version")

    def template(self, name: str) -> str | SourceProblem:
        return SourceProblem(reason="templates are not available here", suggestion="copy the file, include it locally")


def parse_address(text: str) -> ComponentAddress | None:
    """The parts of a component's address, or None if it is none."""
    found = _ADDRESS.fullmatch(text)
    return ComponentAddress(**found.groupdict()) if found else None
