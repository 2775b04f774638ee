"""Provides what a pipeline file can refer to: included files, components, and the lists of all files and of changed
files.

Files come from projects of this cell through `remuda.cell.git.port.Reader`, and from other machines through
`remuda.cell.pipelines.remote_files`."""

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
"""The limit for a pipeline file and for each included file."""

_COMPONENT_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_VERSION = re.compile(r"v?(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})(\+[0-9A-Za-z.-]+)?")
_PART_OF_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8}))?")
LATEST = "~latest"


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """What a compilation thread uses of the cell: functions to find projects and fetch addresses; its host names."""

    find_project: Callable[[str], Project | None]
    fetch: Callable[[str, int], bytes | SourceProblem]
    """Gets an address, and how many seconds old its content may be."""
    find_template: Callable[[str], str | SourceProblem]
    host: str
    """The cell's host and port, as in component addresses."""
    other_hosts: tuple[str, ...] = ()
    """Other names of the cell in component addresses."""


class CellSources(Sources):
    """Loads the files that the pipeline file of one commit includes: of its repository, other projects, the web."""

    def __init__(self, reader: Reader, repo: str, sha: str, outside: Outside) -> None:
        self._reader = reader
        self._repo = repo
        self._sha = sha
        self._outside = outside
        self._projects: dict[str, Project | None] = {}

    def local(self, path: str) -> str | SourceProblem | None:
        return self._text(self._repo, self._sha, path)

    def local_glob(self, pattern: str) -> Sequence[str]:
        return match_paths(pattern, sorted(self._reader.files(self._repo, self._sha)))

    def project(self, project: str, ref: str | None, file: str) -> str | SourceProblem:
        commit = self._commit(project, ref)
        if isinstance(commit, SourceProblem):
            return commit
        text = self._text(*commit, file)
        if text is not None:
            return text
        suffix = f" at {quote(ref)}" if ref else ""
        return SourceProblem(
            reason=f"the project {quote(project)} has no file {quote(file)}{suffix}", suggestion="check its path"
        )

    def project_glob(self, project: str, ref: str | None, pattern: str) -> Sequence[str]:
        commit = self._commit(project, ref)
        # The pattern itself as a path: reading it gives the error for the project.
        return (
            [pattern]
            if isinstance(commit, SourceProblem)
            else match_paths(pattern, sorted(self._reader.files(*commit)))
        )

    def remote(self, url: str, *, cache_seconds: int = 0) -> str | SourceProblem:
        content = self._outside.fetch(url, cache_seconds)
        return content if isinstance(content, SourceProblem) else decode(content)

    def component(self, address: ComponentAddress) -> Component | SourceProblem:
        if address.host.lower() not in {host.lower() for host in (self._outside.host, *self._outside.other_hosts)}:
            return SourceProblem(
                reason=f"components come from this cell only, and {quote(address.host)} is another host",
                suggestion=f"copy the project to the cell and write {self._outside.host}, or $CI_SERVER_FQDN",
            )
        project = self._find(address.project)
        if project is None:
            return _no_project(address.project)
        sha, tag = self._version(project.repo_path, address.version)
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
                return Component(text=text, project=project.path, ref=sha, file=file, version=tag)
        reason = f"the project {quote(address.project)} has no component {quote(address.name)} at this version"
        return SourceProblem(reason=reason, suggestion=f"it must have templates/{name or 'NAME'}.yml")

    def template(self, name: str) -> str | SourceProblem:
        return self._outside.find_template(name)

    def _find(self, path: str) -> Project | None:
        if path not in self._projects:
            self._projects[path] = self._outside.find_project(path)
        return self._projects[path]

    def _commit(self, project: str, ref: str | None) -> tuple[str, str] | SourceProblem:
        """Return repository and commit hash of a ref (None: the default branch), or a SourceProblem with the reason."""
        row = self._find(project)
        if row is None:
            return _no_project(project)
        sha = self._reader.commit(row.repo_path, ref)
        if sha is not None:
            return row.repo_path, sha
        if ref:
            reason = f"the project {quote(project)} has no ref {quote(ref)}"
            return SourceProblem(reason=reason, suggestion="name a branch, a tag or a commit")
        return SourceProblem(reason=f"the project {quote(project)} is empty", suggestion="push something to it")

    def _version(self, repo: str, version: str) -> tuple[str | None, str]:
        """Return the commit of a component's version, and its version tag. The commit is None if there is no such
        version; the tag is empty if the version is a branch, a commit or another tag."""
        part = _PART_OF_VERSION.fullmatch(version)
        if version != LATEST and (exact := self._reader.commit(repo, version)) is not None:
            is_tag = _VERSION.fullmatch(version) and self._reader.commit(repo, f"refs/tags/{version}") == exact
            return exact, version if is_tag else ""
        if version != LATEST and not part:
            return None, ""
        tag = highest_version(self._reader.tags(repo), version if part else "")
        return (self._reader.commit(repo, f"refs/tags/{tag}"), tag) if tag else (None, "")

    def _text(self, repo: str, sha: str, path: str) -> str | SourceProblem | None:
        try:
            content = self._reader.file(repo, sha, path, limit_bytes=FILE_LIMIT_BYTES)
        except TooLargeError as error:
            return SourceProblem(reason=str(error), suggestion="split it")
        return None if content is None else decode(content)


class TreeFiles(Mapping[str, str]):
    """A commit's files, blob hashes by path, for `rules:exists` and cache keys. git lists them when first needed."""

    def __init__(self, reader: Reader, repo: str, sha: str) -> None:
        self._files = cache(lambda: reader.files(repo, sha))

    def __getitem__(self, path: str) -> str:
        return self._files()[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files())

    def __len__(self) -> int:
        return len(self._files())


def changed_files(reader: Reader, repo: str, sha: str, before: str | None) -> ChangedFiles:
    """Return a caching function that lists the changed files for `rules:changes`. Called with a ref (`compare_to`), it
    lists the files that changed since the merge base with that ref; if the ref or the merge base does not exist, it
    returns a SourceProblem. Called with None, it lists the files that changed since the commit `before`; if that commit
    is not given or does not exist, it returns None."""

    @cache
    def compare(compare_to: str | None) -> frozenset[str] | SourceProblem | None:
        if compare_to is None:
            return reader.changed_files(repo, before, sha) if before else None
        other = reader.commit(repo, compare_to)
        if other is None:
            reason = f"there is no ref {quote(compare_to)} in this repository"
            return SourceProblem(reason=reason, suggestion="name a branch, a tag or a commit that was pushed")
        base = reader.merge_base(repo, other, sha)
        if base is None:
            reason = f"the commit and {quote(compare_to)} have no common history"
            return SourceProblem(reason=reason, suggestion="compare with a ref that it comes from")
        return reader.changed_files(repo, base, sha)

    return compare


def highest_version(tags: Sequence[str], part: str) -> str | None:
    """Return the highest version tag (1.2.3) that begins with `part` (1.2; empty: any); None if there is none."""
    prefix = [int(number) for number in part.split(".")] if part else []
    versions = {}
    for tag in tags:
        if version := _VERSION.fullmatch(tag):
            numbers = [int(version[1]), int(version[2]), int(version[3])]
            if numbers[: len(prefix)] == prefix:
                versions[tag] = numbers
    return max(versions, key=lambda tag: (versions[tag], tag)) if versions else None


def decode(content: bytes) -> str | SourceProblem:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        return SourceProblem(reason=f"the file is not UTF-8 (byte {error.start})", suggestion="save it as UTF-8")


def _no_project(path: str) -> SourceProblem:
    suggestion = "check its path, and that whoever starts the pipeline is a member of it"
    return SourceProblem(reason=f"there is no project {quote(path)} in this cell", suggestion=suggestion)
