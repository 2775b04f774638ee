"""What a pipeline file may ask for while it is compiled in the cell: included files, and what changed.

Decided here: that a file may include from any project of this cell, which commit a component's version means, and
against which commit `rules:changes` looks. git is asked through `adapters.git_reading`, other machines only through
`adapters.remote_files`. `remuda.cell.pipelines.creation` makes these for one compilation, in whose thread they are
used.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

import msgspec

from remuda.cell.errors import TooLargeError
from remuda.cell.git.port import Reader
from remuda.cell.values import Project
from remuda.pipeline import Component, ComponentAddress, SourceProblem, Sources
from remuda.pipeline.errors import quote
from remuda.pipeline.facts import ChangedFiles
from remuda.pipeline.rules.globs import match_paths

FILE_LIMIT_BYTES = 1024 * 1024
"""One pipeline file, or one that it includes."""

_COMPONENT_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_VERSION = re.compile(r"v?(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})(\+[0-9A-Za-z.-]+)?")
_PART_OF_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8}))?")
LATEST = "~latest"


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """What a thread may ask the rest of the cell for."""

    find_project: Callable[[str], Project | None]
    fetch: Callable[[str], bytes | SourceProblem]
    host: str
    """The cell's own, with its port, as component addresses name it."""
    other_hosts: tuple[str, ...] = ()
    """Names that mean the same."""


class CellSources(Sources):
    """The files that a pipeline of one commit may include."""

    def __init__(self, reading: Reader, repo: str, sha: str, outside: Outside) -> None:
        self._reading = reading
        self._repo = repo
        self._sha = sha
        self._outside = outside
        self._projects: dict[str, Project | None] = {}

    def local(self, path: str) -> str | SourceProblem | None:
        return self._text(self._repo, self._sha, path)

    def local_glob(self, pattern: str) -> Sequence[str]:
        return match_paths([pattern], sorted(self._reading.files(self._repo, self._sha)))

    def project(self, project: str, ref: str | None, file: str) -> str | SourceProblem:
        found = self._commit(project, ref)
        if isinstance(found, SourceProblem):
            return found
        text = self._text(*found, file)
        if text is not None:
            return text
        at = f" at {quote(ref)}" if ref else ""
        return SourceProblem(
            reason=f"the project {quote(project)} has no file {quote(file)}{at}", suggestion="check its path"
        )

    def project_glob(self, project: str, ref: str | None, pattern: str) -> Sequence[str]:
        found = self._commit(project, ref)
        # The pattern itself as a path: asking for it says what is wrong with the project.
        return (
            [pattern]
            if isinstance(found, SourceProblem)
            else match_paths([pattern], sorted(self._reading.files(*found)))
        )

    def remote(self, url: str) -> str | SourceProblem:
        found = self._outside.fetch(url)
        return found if isinstance(found, SourceProblem) else _decode(found)

    def component(self, address: ComponentAddress) -> Component | SourceProblem:
        if address.host.lower() not in {host.lower() for host in (self._outside.host, *self._outside.other_hosts)}:
            return SourceProblem(
                reason=f"components come from this cell only, and {quote(address.host)} is another host",
                suggestion=f"copy the project to the cell and write {self._outside.host}, or $CI_SERVER_FQDN",
            )
        project = self._find(address.project)
        if project is None:
            return _no_project(address.project)
        sha = self._version(project.repo_path, address.version)
        if sha is None:
            return SourceProblem(
                reason=f"the project {quote(address.project)} has no version {quote(address.version)}",
                suggestion=f"name a tag, a branch, a commit, a part of a version such as 1.2, or {LATEST}",
            )
        name = address.name if _COMPONENT_NAME.fullmatch(address.name) else ""
        for file in (f"templates/{name}.yml", f"templates/{name}/template.yml") if name else ():
            text = self._text(project.repo_path, sha, file)
            if isinstance(text, SourceProblem):
                return text
            if text is not None:
                return Component(text=text, project=project.path, ref=sha, file=file)
        reason = f"the project {quote(address.project)} has no component {quote(address.name)} at this version"
        return SourceProblem(reason=reason, suggestion=f"it must have templates/{name or 'NAME'}.yml")

    def template(self, name: str) -> str | SourceProblem:
        return SourceProblem(
            reason=f"the cell has no templates, so there is no {quote(name)}",
            suggestion="copy the file into a project and include it from there",
        )

    def _find(self, path: str) -> Project | None:
        if path not in self._projects:
            self._projects[path] = self._outside.find_project(path)
        return self._projects[path]

    def _commit(self, project: str, ref: str | None) -> tuple[str, str] | SourceProblem:
        """The repository and the commit of another project's ref."""
        found = self._find(project)
        if found is None:
            return _no_project(project)
        sha = self._reading.commit(found.repo_path, ref)
        if sha is not None:
            return found.repo_path, sha
        if ref:
            reason = f"the project {quote(project)} has no ref {quote(ref)}"
            return SourceProblem(reason=reason, suggestion="name a branch, a tag or a commit")
        return SourceProblem(reason=f"the project {quote(project)} is empty", suggestion="push something to it")

    def _version(self, repo: str, version: str) -> str | None:
        part = _PART_OF_VERSION.fullmatch(version)
        if version != LATEST and (exact := self._reading.commit(repo, version)) is not None:
            return exact
        if version != LATEST and not part:
            return None
        found = highest_version(self._reading.tags(repo), version if part else "")
        return self._reading.commit(repo, f"refs/tags/{found}") if found else None

    def _text(self, repo: str, sha: str, path: str) -> str | SourceProblem | None:
        try:
            content = self._reading.file(repo, sha, path, limit_bytes=FILE_LIMIT_BYTES)
        except TooLargeError as error:
            return SourceProblem(reason=str(error), suggestion="split it")
        return None if content is None else _decode(content)


class TreeFiles(Mapping[str, str]):
    """The files of a commit with the names of their contents; listed when a rule first asks."""

    def __init__(self, reading: Reader, repo: str, sha: str) -> None:
        self._files = cache(lambda: reading.files(repo, sha))

    def __getitem__(self, path: str) -> str:
        return self._files()[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files())

    def __len__(self) -> int:
        return len(self._files())


def changed_files(reading: Reader, repo: str, sha: str, before: str | None) -> ChangedFiles:
    """What changed: since `before`, which is None where nobody can tell, or since the history parted from a ref's."""

    @cache
    def changed(compare_to: str | None) -> frozenset[str] | SourceProblem | None:
        if compare_to is None:
            return reading.changed_files(repo, before, sha) if before else None
        other = reading.commit(repo, compare_to)
        if other is None:
            reason = f"there is no ref {quote(compare_to)} in this repository"
            return SourceProblem(reason=reason, suggestion="name a branch, a tag or a commit that was pushed")
        base = reading.merge_base(repo, other, sha)
        if base is None:
            reason = f"the commit and {quote(compare_to)} have no common history"
            return SourceProblem(reason=reason, suggestion="compare with a ref that it comes from")
        return reading.changed_files(repo, base, sha)

    return changed


def highest_version(tags: Sequence[str], part: str) -> str | None:
    """The tag with the highest whole version among those that begin with this part of one."""
    wanted = [int(number) for number in part.split(".")] if part else []
    versions = {}
    for tag in tags:
        if found := _VERSION.fullmatch(tag):
            numbers = [int(found[1]), int(found[2]), int(found[3])]
            if numbers[: len(wanted)] == wanted:
                versions[tag] = numbers
    return max(versions, key=lambda tag: (versions[tag], tag)) if versions else None


def _decode(content: bytes) -> str | SourceProblem:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        return SourceProblem(reason=f"the file is not UTF-8 (byte {error.start})", suggestion="save it as UTF-8")


def _no_project(path: str) -> SourceProblem:
    return SourceProblem(reason=f"there is no project {quote(path)} in this cell", suggestion="check its path")
