"""Finds the files that a pipeline file includes: in the folder, in clones of other projects, or remote if allowed. A
local file is one that a push of the folder would send. A file of another project comes from the commit that its local
clone has for the ref, a component from the tag, branch or commit of its version. Invariants: reads no file outside of
the folders, follows no links, reads at most `LIMIT_BYTES` of a file."""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from remuda.localrun.sources.predefined_variables import NOWHERE
from remuda.localrun.sources.project_fetch import ProjectFetcher
from remuda.localrun.sources.remote_files import LIMIT_BYTES, Remote
from remuda.localrun.sources.repository import REGULAR, Repository
from remuda.localrun.sources.worktree import WorkTreeFiles
from remuda.pipeline import Component, ComponentAddress, Facts, SourceProblem, Sources
from remuda.pipeline.errors import quote
from remuda.pipeline.include.allowed_addresses import Prefix, read_prefix
from remuda.pipeline.rules.globs import match_paths
from remuda.pipeline.templates import GITLAB_TEMPLATES, find_template, is_address, key_of

LATEST = "~latest"

_TEMPLATE_HINT = (
    f"pass --templates with a folder or a server that has it (GitLab's own: --templates {GITLAB_TEMPLATES}), or set "
    "`templates` in your settings"
)

_T = TypeVar("_T", str | SourceProblem, str | SourceProblem | None)
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
_SHA = re.compile(r"[0-9a-f]{40}")
_PARTIAL = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?")


class WorkTreeSources(Sources):
    """Provides the files that the pipeline file of a local folder includes."""

    def __init__(
        self,
        folder: Path,
        facts: Facts,
        *,
        projects: Mapping[str, Path] | None = None,
        fetcher: ProjectFetcher | None = None,
        allowed: Sequence[Prefix] = (),
        templates: str = "",
    ) -> None:
        self._tree = _Folder(folder.resolve())
        self._remote = Remote(allowed, asks=True)
        self.templates = templates
        """The folder or server of templates; empty: none, until the user permits the server of the project."""
        url = facts.predefined.get("CI_SERVER_URL", NOWHERE)
        self._template_offer = "" if url == NOWHERE else url
        own = facts.predefined.get("CI_PROJECT_PATH", "")
        self._folders = {own: folder, **(projects or {})}
        self._fetcher = fetcher
        self.projects = dict(projects or {})
        """Local clones of other projects by project path: those that were given, and those that were fetched."""
        self.component_hosts: set[str] = set()
        """Hosts of servers from which components were fetched."""
        self.problems: list[SourceProblem] = []
        """Why files of other projects and addresses could not be fetched."""
        self._clones: dict[str, _Folder | _Clone] = {}
        self.texts: dict[str, str] = {}
        """The texts of the files that were read, by the file name that error messages use."""

    def local(self, path: str) -> str | SourceProblem | None:
        return self._record(path, self._tree.text(path))

    def local_glob(self, pattern: str) -> Sequence[str]:
        return self._tree.glob(pattern)

    def project(self, project: str, ref: str | None, file: str) -> str | SourceProblem:
        clone = self._clone(project, ref)
        if isinstance(clone, SourceProblem):
            return clone
        text = clone.text(file, ref)
        if text is not None:
            return self._record(f"{project}:{file}", text)
        reason = f"the project {quote(project)} has no file {quote(file)}"
        return SourceProblem(reason=reason, suggestion="check its path and the ref")

    def project_glob(self, project: str, ref: str | None, pattern: str) -> Sequence[str]:
        clone = self._clone(project, ref)
        paths = None if isinstance(clone, SourceProblem) else clone.glob(pattern, ref)
        # Without paths the compiler asks for a file of that name, and gets the problem.
        return [pattern] if paths is None else paths

    def remote(self, url: str, *, cache_seconds: int = 0) -> str | SourceProblem:
        # Each file is fetched once in a run, which is shorter than any time for which it may be cached.
        text = self._remote.text(url)
        if isinstance(text, SourceProblem):
            self.problems.append(text)
        return self._record(url, text)

    def component(self, address: ComponentAddress) -> Component | SourceProblem:
        clone = self._clone(address.project, address.version, address.host)
        if isinstance(clone, SourceProblem):
            return clone
        ref, tag = clone.version(address.version)
        if ref is None:
            reason = f"the component's project has no version {quote(address.version)}"
            return SourceProblem(reason=reason, suggestion="check it, or fetch it with git in that clone")
        for file in (f"templates/{address.name}.yml", f"templates/{address.name}/template.yml"):
            text = clone.text(file, ref)
            if isinstance(text, SourceProblem):
                return text
            if text is not None:
                self._record(str(address), text)
                return Component(text=text, project=address.project, ref=ref, file=file, version=tag)
        reason = f"the project {quote(address.project)} has no component {quote(address.name)} at that version"
        return SourceProblem(reason=reason, suggestion=f"it would be in templates/{address.name}.yml")

    def template(self, name: str) -> str | SourceProblem:
        text = self._find_template(name)
        if isinstance(text, SourceProblem) and key_of(name) and not self.templates and self._template_offer:
            from remuda.localrun.settings.answers import is_permitted

            if is_permitted(
                f"Fetch the template {name} from {self._template_offer}?", "templates", self._template_offer
            ):
                self.templates = self._template_offer
                text = self._find_template(name)
        return self._record(name, text)

    def _find_template(self, name: str) -> str | SourceProblem:
        server = read_prefix(self.templates) if is_address(self.templates) else None
        return find_template(name, self.templates, Remote((server,) if server else ()).text, hint=_TEMPLATE_HINT)

    @property
    def remotes(self) -> tuple[str, ...]:
        """Address prefixes that files may be included from, also those that the user has permitted meanwhile."""
        return tuple(prefix.address for prefix in self._remote.allowed)

    def _record(self, name: str, text: _T) -> _T:
        if isinstance(text, str):
            self.texts[name] = text
        return text

    def _clone(self, project: str, ref: str | None, host: str = "") -> "_Folder | _Clone | SourceProblem":
        """Return a clone of a project, fetched if none was given. `ref`: what is needed of it; None: the default
        branch. `host`: that of a component's address."""
        if project not in self._folders:
            folder = self._fetch(project, ref, host)
            if isinstance(folder, SourceProblem):
                self.problems.append(folder)
                return folder
            if self.projects.setdefault(project, folder) != folder:
                reason = f"the project {quote(project)} is included from two servers"
                return SourceProblem(reason=reason, suggestion="include it from one, or pass --project with a clone")
            if host:
                self.component_hosts.add(host)
        if project not in self._clones:
            folder = (self._folders.get(project) or self.projects[project]).resolve()
            repository = Repository.at(folder)
            whole = repository is not None and not repository.is_part
            self._clones[project] = _Clone(repository) if repository and whole else _Folder(folder)
        return self._clones[project]

    def _fetch(self, project: str, ref: str | None, host: str) -> Path | SourceProblem:
        if self._fetcher is None:
            reason = f"the project {quote(project)} is not known here"
            return SourceProblem(reason=reason, suggestion=f"pass --project {project}=FOLDER with a clone of it")
        # Commits do not change, and tags of versions are not moved.
        fixed = ref if ref is not None and (_SHA.fullmatch(ref) or _VERSION.fullmatch(ref)) else ""
        return self._fetcher.fetch(project, host, is_enough=(lambda copy: bool(copy.commit(fixed))) if fixed else None)


class _Folder:
    """Provides current files of a folder, committed or not: of the pipeline's folder, or of another project whose
    folder is not the top of a git repository."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = WorkTreeFiles(folder, Repository.at(folder))

    def text(self, path: str, _ref: str | None = None) -> str | SourceProblem | None:
        try:
            return self._text(path)
        except (OSError, ValueError):
            # The file does not exist, or no file can have this name.
            return None

    def _text(self, path: str) -> str | SourceProblem | None:
        place = os.path.join(self._folder, path)
        if not os.path.lexists(place):
            return None
        if os.path.realpath(place) != place:
            reason = f"{quote(path)} is a symbolic link, or behind one"
            return SourceProblem(reason=reason, suggestion="name the file itself")
        # O_NONBLOCK: opening a FIFO would block.
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return SourceProblem(reason=f"{quote(path)} is not a file", suggestion="check the path")
            data = file.read(LIMIT_BYTES + 1)
        if path not in self._files:
            reason = f"git ignores {quote(path)}, so a push would not send it"
            return SourceProblem(reason=reason, suggestion="add it with git add --force, or include another file")
        return _decode(data, path)

    def glob(self, pattern: str, _ref: str | None = None) -> list[str]:
        return match_paths(pattern, _printable_paths(self._files))

    def version(self, _text: str) -> tuple[str, str]:
        return "", ""


class _Clone:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def text(self, path: str, ref: str | None) -> str | SourceProblem | None:
        commit = self._commit(ref)
        if commit is None:
            reason = f"the project has no ref {quote(ref)}" if ref else "the project has no commits"
            return SourceProblem(reason=reason, suggestion="check it, or fetch it with git in that clone")
        file = self._repository.tree(commit).get(path)
        if file is None:
            return None
        if file.mode not in REGULAR:
            return SourceProblem(reason=f"{quote(path)} is a link, not a file", suggestion="name the file itself")
        data = self._repository.blob(file.id) if file.size <= LIMIT_BYTES else b"?" * (LIMIT_BYTES + 1)
        if data is None:
            reason = f"the clone does not have the contents of {quote(path)}"
            return SourceProblem(reason=reason, suggestion="fetch all of it with git")
        return _decode(data, path)

    def glob(self, pattern: str, ref: str | None) -> list[str] | None:
        """Return the matching paths in the commit of `ref`; None if the ref does not exist."""
        commit = self._commit(ref)
        return match_paths(pattern, _printable_paths(self._repository.tree(commit))) if commit else None

    def version(self, text: str) -> tuple[str | None, str]:
        """Return the commit of a component's version: a commit id, a tag, a branch, `~latest`, or the first numbers of
        a version such as `1.2`; None if there is no such version. Also returns the tag if it is a version."""
        if text != LATEST and (commit := self._repository.commit(text, own_first=True)):
            is_tag = _VERSION.fullmatch(text) and self._repository.resolve(f"refs/tags/{text}") == commit
            return commit, text if is_tag else ""
        partial = _PARTIAL.fullmatch(text)
        if text != LATEST and partial is None:
            return None, ""
        prefix = tuple(int(part) for part in partial.groups() if part) if partial else ()
        tags = {
            tuple(map(int, match.groups())): tag
            for tag in self._repository.answer("tag", "--list").split()
            if (match := _VERSION.fullmatch(tag))
        }
        versions = [version for version in tags if version[: len(prefix)] == prefix]
        tag = tags[max(versions)] if versions else ""
        return self._repository.resolve(f"refs/tags/{tag}") if tag else None, tag

    def _commit(self, ref: str | None) -> str | None:
        if ref:
            return self._repository.commit(ref, own_first=True)
        default = self._repository.default_branch()
        places = ("refs/heads/", "refs/remotes/origin/")
        commits = (self._repository.resolve(place + default) for place in places) if default else ()
        return next(filter(None, commits), None) or self._repository.resolve("HEAD")


def _decode(data: bytes, path: str) -> str | SourceProblem:
    if len(data) > LIMIT_BYTES:
        reason = f"the file {quote(path)} is larger than {LIMIT_BYTES} bytes"
        return SourceProblem(reason=reason, suggestion="split it")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return SourceProblem(reason=f"the file {quote(path)} is not UTF-8 text", suggestion="save it as UTF-8")


def _printable_paths(paths: Mapping[str, object]) -> list[str]:
    """Return the paths, sorted, without unprintable ones, which can be neither written in a pipeline file nor shown."""
    return sorted(path for path in paths if path.isprintable())
