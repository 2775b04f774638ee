"""Computes the facts that the rules of a pipeline are evaluated with, for a folder on this machine: ref, project,
commit, event, predefined variables, and the files that a push would send (HEAD with all uncommitted changes and
untracked files, without ignored ones). The folder may be a repository, a subfolder of one, or neither. Invariant: the
folder is only read. The files, their hashes and the changed files are computed when a rule first asks for them."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path

from remuda.lib.exits import BadInputError
from remuda.localrun.sources import predefined_variables
from remuda.localrun.sources.repository import GITLINK, Repository, is_ref_name
from remuda.pipeline import Facts, SourceProblem
from remuda.pipeline.errors import quote
from remuda.pipeline.facts import MERGE_REQUEST, NO_SHA, ChangedFiles

DEFAULT_BRANCH = "main"
EVENTS = {
    "push": "push",
    "tag": "push",
    "web": "web",
    "api": "api",
    "schedule": "schedule",
    "trigger": "trigger",
    "pipeline": "pipeline",
    "parent_pipeline": "parent_pipeline",
    "merge_request": MERGE_REQUEST,
    MERGE_REQUEST: MERGE_REQUEST,
}
"""Values of `--event`, with the CI_PIPELINE_SOURCE of each."""

_TARGET = "CI_MERGE_REQUEST_TARGET_BRANCH_NAME"


def facts_of(
    folder: Path,
    *,
    repository: Repository | None = None,
    event: str = "push",
    ref: str | None = None,
    tag: str | None = None,
    variables: Mapping[str, str] | None = None,
    raw: frozenset[str] = frozenset(),
) -> Facts:
    """Return the facts of a pipeline for this folder in its current state. `ref` and `tag` replace those that are
    checked out; the files are always those of the folder. `raw`: names of variables whose values are not expanded.
    Raises BadInputError if the event, ref or tag is invalid."""
    if event not in EVENTS:
        raise BadInputError(f"--event {event}: there is no such event; use one of: {', '.join(EVENTS)}")
    source, variables = EVENTS[event], variables or {}
    folder = folder.resolve()
    repository = repository or Repository.at(folder)
    branch, tag = _names(repository, event, ref, tag)
    current = repository.answer("symbolic-ref", "--quiet", "--short", "HEAD") if repository else ""
    default_branch = _default_branch(repository)
    branch = branch or current or default_branch
    address = predefined_variables.address_of(repository, folder)
    commit = predefined_variables.of_commit(repository)
    # The commit that `rules:changes` compares the work tree with; None if everything counts as changed.
    before: str | None = None
    more: dict[str, str] = {}
    if source == MERGE_REQUEST:
        target = variables.get(_TARGET, default_branch)
        before = repository.commit(target) if repository else None
        base = repository.merge_base(before) if repository and before else None
        title = commit.get("CI_COMMIT_TITLE", "")
        more = predefined_variables.of_merge_request(
            address, source=branch, target=target, default_branch=default_branch, base=base or "", title=title
        )
    elif source == "push" and tag is None:
        before = _server_commit(repository, branch, current, commit.get("CI_COMMIT_SHA")) if repository else None
        more = {"CI_COMMIT_BEFORE_SHA": before or NO_SHA}
    elif source == "trigger":
        more = {"CI_PIPELINE_TRIGGERED": "true"}
    if tag is not None:
        more |= predefined_variables.of_tag(repository, tag)
    return Facts(
        ref=tag or branch,
        is_tag=tag is not None,
        default_branch=default_branch,
        source=source,
        sha=commit.get("CI_COMMIT_SHA", NO_SHA),
        predefined={
            "CI_COMMIT_BEFORE_SHA": NO_SHA,
            "CI_COMMIT_REF_PROTECTED": "true" if tag is None and branch == default_branch else "false",
            "CI_CONFIG_PATH": ".gitlab-ci.yml",
            "CI_PIPELINE_IID": "1",
            **predefined_variables.of_project(address),
            **predefined_variables.of_user(repository),
            **commit,
            **more,
        },
        variables=dict(variables),
        raw=raw,
        changed_files=_change_finder(repository, before),
        files=WorkTreeFiles(folder, repository),
    )


class WorkTreeFiles(Mapping[str, str]):
    """The files that a push of the folder would send, as a mapping from path to git blob id."""

    def __init__(self, folder: Path, repository: Repository | None) -> None:
        self._folder = folder
        self._repository = repository

    def __getitem__(self, path: str) -> str:
        identity = self._ids[path]
        if not identity:
            identity = self._ids[path] = _blob_id(self._folder / path)
        return identity

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, path: object) -> bool:
        # The inherited method would hash the file.
        return path in self._ids

    @cached_property
    def _ids(self) -> dict[str, str]:
        """Git blob ids of all files by path. An empty one is computed when it is first read."""
        if self._repository is None:
            return dict.fromkeys(walk_files(self._folder), "")
        ids = {path: file.id for path, file in self._repository.index().items() if file.mode != GITLINK}
        for path in self._repository.modified_files():
            if path in ids:
                ids[path] = ""
                if not os.path.lexists(self._folder / path):
                    del ids[path]
        return ids | dict.fromkeys(self._repository.untracked_files(), "")


def walk_files(folder: Path) -> Iterator[str]:
    """Yield the paths of all files of a folder that is in no repository, except those in a `.git` folder."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in sorted(folders) if name != ".git"]
        for name in sorted(names):
            yield os.path.relpath(os.path.join(place, name), folder)


def _blob_id(path: Path) -> str:
    """Return the git blob id; `NO_SHA` if the file cannot be read."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(os.readlink(path))
            return hashlib.sha1(b"blob %d\0%b" % (len(target), target), usedforsecurity=False).hexdigest()
        if not stat.S_ISREG(status.st_mode):
            return NO_SHA
        digest = hashlib.sha1(b"blob %d\0" % status.st_size, usedforsecurity=False)
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
    except OSError:
        return NO_SHA
    return digest.hexdigest()


def _change_finder(repository: Repository | None, before: str | None) -> ChangedFiles:
    """Return the function that gives `rules:changes` the changed files. `before`: the commit to compare with if the
    rule names no ref; None if everything counts as changed then."""

    @cache
    def find_changes(compare_to: str | None) -> frozenset[str] | SourceProblem | None:
        if compare_to is None:
            if repository is None or before is None:
                return None
            return repository.changes_since(repository.merge_base(before) or before)
        if repository is None:
            return SourceProblem(reason="the folder is not a git repository: there is nothing to compare it with")
        commit = repository.commit(compare_to)
        if commit is None:
            reason = f"there is no ref {quote(compare_to)} in this repository"
            return SourceProblem(reason=reason, suggestion="correct it, or fetch it with git")
        base = repository.merge_base(commit)
        if base is None:
            reason = f"HEAD and {quote(compare_to)} have no common history here"
            return SourceProblem(reason=reason, suggestion="fetch more of it with git fetch --unshallow")
        return repository.changes_since(base)

    return find_changes


def _names(
    repository: Repository | None, event: str, ref: str | None, tag: str | None
) -> tuple[str | None, str | None]:
    """Return branch and tag, each None if not given, from the values of `--ref` and `--tag`; for the event `tag`
    without a name, the newest tag of HEAD. Raises BadInputError for invalid names and combinations."""
    for option, name in (("--ref", ref), ("--tag", tag)):
        if name is not None and not is_ref_name(name):
            raise BadInputError(f"{option} {name}: is not a valid name of a branch or tag")
    branch = ref.removeprefix("refs/heads/") if ref else None
    if tag is None and ref is not None and (event == "tag" or ref.startswith("refs/tags/")):
        branch, tag = None, ref
    elif tag is None and event == "tag":
        here = repository.answer("tag", "--points-at", "HEAD", "--sort=-creatordate") if repository else ""
        tag = here.partition("\n")[0]
        if not tag:
            raise BadInputError("--event tag: no tag points at HEAD; name one with --tag")
    if tag is not None and EVENTS[event] == MERGE_REQUEST:
        raise BadInputError(f"--tag {tag}: a merge request has a branch; give it with --ref, or another --event")
    return branch, tag.removeprefix("refs/tags/") if tag else None


def _server_commit(repository: Repository, branch: str, current: str, head: str | None) -> str | None:
    """Return the commit that `branch` has on the server, according to this clone's remote-tracking branch. None if the
    clone has no such branch or there is nothing to push; then everything counts as changed. `current`: the branch that
    is checked out. `head`: the commit of HEAD."""
    upstream = repository.resolve("@{upstream}") if branch == current else None
    commit = upstream or repository.resolve(f"refs/remotes/origin/{branch}")
    base = commit if commit == head else repository.merge_base(commit) if commit else None
    if base and base == head and (repository.status() == b"" or not repository.changes_since(base)):
        return None
    return commit


def _default_branch(repository: Repository | None) -> str:
    """Return the default branch of `origin`; else a branch with a usual name (git's `init.defaultBranch`, main,
    master); else the only branch, or without any branch the current one; else `init.defaultBranch`, by default main."""
    if repository is None:
        return DEFAULT_BRANCH
    if branch := repository.default_branch_of_origin():
        return branch
    origin = "refs/remotes/origin/"
    configured = repository.settings("init.defaultbranch").get("init.defaultbranch", DEFAULT_BRANCH)
    usual = dict.fromkeys((configured, DEFAULT_BRANCH, "master"))
    places = [place + name for name in usual for place in ("refs/heads/", origin)]
    refs = repository.answer("for-each-ref", "--format=%(refname)", *places).split()
    for name in usual:
        if f"refs/heads/{name}" in refs or f"{origin}{name}" in refs:
            return name
    branches = repository.answer("for-each-ref", "--count=2", "--format=%(refname:lstrip=2)", "refs/heads").split()
    current = repository.answer("symbolic-ref", "--quiet", "--short", "HEAD")
    return branches[0] if len(branches) == 1 else current if current and not branches else configured
