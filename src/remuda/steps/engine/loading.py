"""Finds and reads the step that an entry of a list of steps refers to.

Refuses steps that call themselves, trees of steps that are too deep or too large, and inner steps for a step that opens
no environment. After a restart of the agent, `job_tree.stored_steps` restores loaded steps from the journal instead."""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from remuda.lib.clock import SystemClock
from remuda.lib.waiting import unwrap_group_error
from remuda.steps.errors import DefinitionError
from remuda.steps.job_tree.evaluation import Facts, reference_text
from remuda.steps.job_tree.tree import INSERTED, LONGEST_PATH, MOST_STEPS, Loaded, Node, Tree
from remuda.steps.language.escaping import OPENER
from remuda.steps.language.reading import read_step
from remuda.steps.language.references import parse_reference
from remuda.steps.language.values import FETCHED, Reference, ReferenceKind
from remuda.steps.process.environment import AUTHORITIES
from remuda.steps.resolving.values import PackageOrigin, Resolved


class _Nearby:
    """Cache entry of a step in a local file: valid for the same time stamp, size and inode. A file modified a moment
    ago is never taken from the cache: a second change could leave its time stamp the same."""

    def __init__(self, loaded: Loaded, path: str) -> None:
        self.loaded = loaded
        self._path = path
        self._state = self._now()

    def is_unchanged(self) -> bool:
        return self._state is not None and self._state == self._now()

    def _now(self) -> tuple[int, int, int] | None:
        try:
            status = os.lstat(self._path)
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode) or _CLOCK.wall() - status.st_mtime < _SETTLED_SECONDS:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


_nearby: dict[tuple[Reference, str, str | None], _Nearby] = {}
_MOST_NEARBY = 1000
_SETTLED_SECONDS = 0.1
_CLOCK = SystemClock()
"""Compared with the times of files."""


class Resolver(Protocol):
    """Interface for finding the package of a step; `remuda.steps.resolving.resolver` implements it."""

    async def resolve(
        self,
        reference: Reference,
        *,
        base: Path,
        root: Path | None,
        env: Mapping[str, str],
        substitutes: Mapping[str, str] | None = None,
        caller: PackageOrigin | None = None,
    ) -> Resolved: ...


def check_room(tree: Tree, node: Node) -> None:
    """Raise DefinitionError if the step is nested too deeply, or the job has already started too many steps."""
    if len(node.key) > LONGEST_PATH:
        raise DefinitionError(f"steps call steps more than {LONGEST_PATH} levels deep here")
    if tree.serials >= MOST_STEPS:
        raise DefinitionError(f"the job has started {MOST_STEPS} steps, and may not start more")


async def load(
    tree: Tree,
    facts: Facts,
    node: Node,
    resolver: Resolver,
    *,
    substitutes: Mapping[str, str],
    announce: Callable[[Reference], Coroutine[Any, Any, None]],
) -> Loaded:
    """Find and read the step that `node` refers to. `substitutes`: by policy, other references to use instead of some.
    `announce` runs while a package is fetched from a server, and is cancelled afterwards. Raises DefinitionError if the
    step is invalid, ResolveError if it cannot be fetched."""
    reference = node.call.reference
    assert reference is not None
    frame = node.frame
    assert frame.loaded is not None
    if reference.kind is ReferenceKind.DYNAMIC:
        reference = parse_reference(reference_text(tree, facts, node, reference.text), node.call.place)
        if reference.kind is ReferenceKind.DYNAMIC:
            raise DefinitionError(f"{node.call.place}: the reference still contains an expression after its evaluation")
    elif OPENER in reference.url:
        reference = replace(reference, url=reference_text(tree, facts, node, reference.url))
    folder, root = frame.loaded.folder, frame.loaded.root
    if node.call.origin == INSERTED:
        # An inserted step belongs to no package of the job.
        folder, root = "/", None
    is_the_jobs = frame.parent is None and node.is_users
    if facts.is_confined and is_the_jobs and reference.kind is ReferenceKind.LOCAL:
        # The agent reads the file with its own rights, so no link of the job may lead out of the working directory.
        root = facts.work_dir
    key = (reference, folder, root)
    if reference.kind is ReferenceKind.LOCAL and (nearby := _nearby.get(key)) is not None and nearby.is_unchanged():
        _check(node, nearby.loaded)
        return nearby.loaded
    work = resolver.resolve(
        reference,
        base=Path(folder),
        root=Path(root) if root is not None else None,
        env=_fetch_env(tree, facts, node),
        substitutes=substitutes,
        caller=_origin_of(frame.loaded) if root == frame.loaded.root else None,
    )
    is_fetched = reference.kind in FETCHED
    resolved = await (_run_beside(work, announce(reference), f"fetch of {node.path}") if is_fetched else work)
    loaded = Loaded(
        step=read_step(resolved.text, file=resolved.file),
        reference=resolved.reference,
        kind=resolved.kind,
        folder=str(resolved.folder),
        root=str(resolved.root) if resolved.root is not None else None,
        text=resolved.text,
        digest=resolved.digest,
        commit=resolved.commit,
        version=resolved.version,
        remark=resolved.remark,
        real=resolved.real,
    )
    _check(node, loaded)
    if loaded.kind is ReferenceKind.LOCAL:
        if len(_nearby) >= _MOST_NEARBY:
            _nearby.clear()
        _nearby[key] = _Nearby(loaded, loaded.reference)
    return loaded


async def _run_beside(work: Awaitable[Resolved], beside: Coroutine[Any, Any, None], name: str) -> Resolved:
    """Run `beside`, in a task with this name, while `work` runs. It is cancelled when `work` has ended."""
    async with unwrap_group_error(), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(beside, name=name)
        resolved = await work
        task.cancel()
    return resolved


def _origin_of(loaded: Loaded) -> PackageOrigin | None:
    if loaded.kind is None or not loaded.is_fetched:
        return None
    return PackageOrigin(
        kind=loaded.kind,
        reference=loaded.reference,
        digest=loaded.digest or "",
        commit=loaded.commit,
        version=loaded.version,
    )


def _fetch_env(tree: Tree, facts: Facts, node: Node) -> dict[str, str]:
    """Return the environment for fetching a package (proxies, certificates, credentials). The job cannot change that of
    steps inserted by a policy. For a confined job, copies of its certificate files are used, safe from replacement."""
    if node.is_inserted:
        return {**facts.agent_env, **facts.inserted_env}
    env = {**facts.request_env, **tree.exports}
    if facts.is_confined:
        env = {name: value for name, value in env.items() if name not in AUTHORITIES} | dict(facts.authorities)
    return {**facts.base_env, **env}


def _check(node: Node, loaded: Loaded) -> None:
    caller = node.frame
    while caller.parent is not None:
        if caller.loaded is not None and _identity(caller.loaded) == _identity(loaded):
            raise DefinitionError(f"the step calls itself: {caller.path} is {loaded.reference} too")
        caller = caller.frame
    if node.call.inner and loaded.step.definition.environment is None:
        raise DefinitionError(f"{node.call.place}: {loaded.reference} makes no environment, so it takes no inner steps")


def _identity(loaded: Loaded) -> tuple[ReferenceKind | None, str, str | None]:
    return loaded.kind, loaded.reference, loaded.digest
