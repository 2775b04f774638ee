"""Finds the package of a step and fetches it to this machine: the entry point of `resolving`, called by `steps.engine`.

A full commit and a digest are fetched only once. Branches, tags and abbreviated commits are looked up at each use; if
the server cannot be reached, the package that they last resolved to is used, with a warning. The same package is
fetched by one caller at a time. A call may be repeated at any time, also by another process after a crash."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from remuda.lib.clock import Clock, SystemClock
from remuda.steps.errors import DefinitionError
from remuda.steps.language.references import parse_reference
from remuda.steps.language.values import Place, Reference, ReferenceKind
from remuda.steps.resolving import git, tree
from remuda.steps.resolving.builtins import Builtins, Bundled, find_packages, unpack
from remuda.steps.resolving.cache import LIMIT_BYTES, Package, PackageCache
from remuda.steps.resolving.definitions import inner_folder, local_folder, read_definition
from remuda.steps.resolving.errors import ResolveError, TemporaryResolveError
from remuda.steps.resolving.retrying import PATIENCE_SECONDS, retry, select_env
from remuda.steps.resolving.values import PackageOrigin, Resolved, describe, image_address, is_digest

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MOST_AT_ONCE = 8
"""Connections to servers at the same time."""

T = TypeVar("T")


class Resolver:
    def __init__(
        self,
        cache: Path,
        *,
        clock: Clock | None = None,
        builtins: "Traversable | None" = None,
        limit_bytes: int = LIMIT_BYTES,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._clock = clock or SystemClock()
        self._cache = PackageCache(cache, clock=self._clock, limit_bytes=limit_bytes)
        self._builtin_folder = cache / "builtin"
        self._builtins = Builtins(builtins or find_packages())
        self._unpacked: dict[tuple[str, str], Package] = {}
        self._used: dict[Path, tuple[Package, Reference, dict[str, Any]]] = {}
        self._patience_seconds = patience_seconds
        self._connections = asyncio.Semaphore(MOST_AT_ONCE)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def resolve(
        self,
        reference: Reference,
        *,
        base: Path,
        root: Path | None,
        env: Mapping[str, str],
        substitutes: Mapping[str, str] | None = None,
        caller: PackageOrigin | None = None,
    ) -> Resolved:
        """Find the step that a reference names, and fetch its package if needed. Raises ResolveError if that fails.
        `base`: folder of the calling step's file, for a job its working directory. `root`: the folder of the calling
        step's package, which local references must not leave; None: no limit. `env`: job variables and the step's
        environment. `substitutes` maps builtin references (`builtin://NAME` or `builtin://NAME@VERSION`) to the
        references to use instead. `caller`: where the package of the calling step was fetched from; None: the calling
        step belongs to no package."""
        if reference.kind is ReferenceKind.BUILTIN and (text := _substitute(reference, substitutes or {})):
            reference, base, root = _parse_substitute(text, reference), Path("/"), None
        try:
            match reference.kind:
                case ReferenceKind.LOCAL:
                    if root is not None and caller is not None and root not in self._used:
                        # An earlier agent process has fetched the package.
                        self._used[root] = _restore_use(root, caller)
                    return await self._local(reference, base, root)
                case ReferenceKind.GIT:
                    return await self._git(reference, select_env(env))
                case ReferenceKind.OCI:
                    return await self._image(reference, select_env(env))
                case ReferenceKind.BUILTIN:
                    return await self._builtin(reference)
                case ReferenceKind.DYNAMIC:
                    raise ResolveError(f"{reference.text}: its expressions must be evaluated first")
        except OSError as error:
            raise TemporaryResolveError(f"step {describe(reference)}: {error}", is_away=False) from None

    async def _local(self, reference: Reference, base: Path, root: Path | None) -> Resolved:
        folder, file = local_folder(reference, base, root)
        if root in self._used:
            # A step inside a package belongs to that package.
            package, pinned, facts = self._used[root]
            if await asyncio.to_thread(self._cache.find, root.parent.name) is None:
                raise TemporaryResolveError(f"{pinned.text} was removed or changed while it was used", is_away=False)
            return self._inside(package, replace(pinned, path=str(folder.relative_to(root)), file=file), **facts)
        definition = read_definition(folder, file, root=root, shown=reference.text)
        name, text = definition.name, definition.text
        return Resolved(
            real=definition.real,
            reference=str(folder / name),
            kind=ReferenceKind.LOCAL,
            digest=f"sha256:{sha256(text.encode()).hexdigest()}",
            folder=folder,
            root=root,
            file=name,
            text=text,
            pinned=Reference(kind=ReferenceKind.LOCAL, text=str(folder / name), path=str(folder), file=name),
        )

    async def _builtin(self, reference: Reference) -> Resolved:
        bundled = self._builtins.choose(reference.path, reference.version)
        key = (bundled.name, bundled.version)
        package = self._unpacked.get(key)
        if package is None or not package.root.is_dir():
            package = self._unpacked[key] = await asyncio.to_thread(self._unpack, bundled)
        canonical = f"builtin://{bundled.name}@{bundled.version}"
        return Resolved(
            reference=canonical,
            kind=ReferenceKind.BUILTIN,
            digest=package.digest,
            folder=package.root,
            root=package.root,
            file="func.yml",
            text=bundled.text,
            version=bundled.version,
            pinned=replace(reference, text=canonical, version=bundled.version),
        )

    def _unpack(self, bundled: Bundled) -> Package:
        with self._cache.make_folder() as aside:
            unpack(bundled, aside / "files")
            digest = tree.digest_of(aside / "files")
            folder = self._builtin_folder / f"{bundled.name.replace('/', '-')}-{bundled.version}-{digest[7:19]}"
            tree.keep(aside / "files", folder)
        return Package(root=folder, digest=digest)

    async def _git(self, reference: Reference, env: Mapping[str, str]) -> Resolved:
        where = git.repository(reference.url, env)
        tip, remark = git.Tip(commit=reference.version), ""
        if not git.is_whole_commit(reference.version):
            tip, remark = await self._tip(where, reference.version)
        package, commit = await self._commit(where, tip.commit or reference.version, tip)
        if not git.is_whole_commit(reference.version) and not remark:
            self._cache.remember(f"git {where.url} {reference.version}", {"commit": commit, "is_tag": tip.is_tag})
        pinned = replace(reference, url=where.url, version=commit)
        return self._inside(
            package,
            replace(pinned, text=f"{where.url}@{commit}"),
            commit=commit,
            version=reference.version.removeprefix("refs/tags/") if tip.is_tag else None,
            remark=remark,
        )

    async def _tip(self, where: git.Repository, version: str) -> tuple[git.Tip, str]:
        """Return a version's commit on the server, and ""; if unreachable, the last used commit, and a warning."""
        last = self._cache.recall(f"git {where.url} {version}")
        commit = str(last.get("commit", ""))
        is_here = bool(commit) and await asyncio.to_thread(self._cache.find, _git_key(where, commit)) is not None

        async def ask() -> git.Tip:
            async with self._connections:
                return await git.ask(where, version)

        try:
            tip = await retry(self._clock, ask, patience_seconds=0.0 if is_here else self._patience_seconds)
        except TemporaryResolveError as error:
            if not is_here or not error.is_away:
                raise
            remark = f"{error}; using {commit[:12]}, to which {version} resolved when it was last used here"
            return git.Tip(commit=commit, is_tag=bool(last.get("is_tag"))), remark
        if not tip.commit and not git.may_be_commit(version):
            raise ResolveError(
                f"{where.url}@{version} not found: the repository has no tag and no branch of this name, and a commit "
                f"needs {git.SHORTEST_COMMIT} or more hexadecimal digits in lower case"
            )
        if not tip.commit and commit.startswith(version):
            return git.Tip(commit=commit), ""
        return tip, ""

    async def _commit(self, where: git.Repository, version: str, tip: git.Tip) -> tuple[Package, str]:
        async with self._lock(_git_key(where, version)):
            if package := await asyncio.to_thread(self._cache.find, _git_key(where, version)):
                return package, version

            async def fetch() -> tuple[Package, str]:
                with self._cache.make_folder() as aside:
                    async with self._connections:
                        commit = await git.fetch(where, version, aside / "repository", is_sha256=tip.is_sha256)
                    return await _to_the_end(partial(self._keep_commit, where, commit, aside)), commit

            return await retry(self._clock, fetch, patience_seconds=self._patience_seconds)

    def _keep_commit(self, where: git.Repository, commit: str, aside: Path) -> Package:
        (aside / "files").mkdir()
        git.write_commit(where, commit, aside / "repository", aside / "files")
        return self._cache.add(_git_key(where, commit), aside / "files")

    async def _image(self, reference: Reference, env: Mapping[str, str]) -> Resolved:
        # Slow to import, and an agent seldom needs it.
        from remuda.steps.resolving.images import host_platform

        host, reference = host_platform(), image_address(reference)
        name = f"oci {reference.registry}/{reference.repository} {reference.tag} {host}"
        digest, remark = reference.tag, ""
        package = await self._find_image(reference, digest) if is_digest(digest) else None
        if package is None:
            # A tag, or the digest of an index.
            digest = str(self._cache.recall(name).get("manifest", ""))
            package = await self._find_image(reference, digest) if digest else None
        if package is None:
            package, digest = await self._pull_latest(name, reference, env, host, self._patience_seconds)
        elif not is_digest(reference.tag):
            try:
                package, digest = await self._pull_latest(name, reference, env, host, 0.0)
            except TemporaryResolveError as error:
                if not error.is_away:
                    raise
                remark = f"{error}; using {digest}, to which {reference.tag} resolved when it was last used here"
        return self._inside(
            package,
            replace(reference, tag=digest, text=f"{reference.registry}/{reference.repository}@{digest}"),
            version=None if is_digest(reference.tag) else reference.tag,
            remark=remark,
        )

    async def _find_image(self, reference: Reference, digest: str) -> Package | None:
        return await asyncio.to_thread(self._cache.find, _image_key(reference, digest))

    async def _pull_latest(
        self, name: str, reference: Reference, env: Mapping[str, str], host: str, patience_seconds: float
    ) -> tuple[Package, str]:
        """Fetch the image that a tag or digest has now for the platform `host`, and store its digest in the cache under
        `name`. Returns package and manifest digest. Retries an unreachable registry for `patience_seconds`."""

        async def fetch() -> tuple[Package, str]:
            async with self._connections:
                return await _in_thread(partial(self._pull, reference, env, host))

        async with self._lock(name):
            package, digest = await retry(self._clock, fetch, patience_seconds=patience_seconds)
            self._cache.remember(name, {"manifest": digest})
        return package, digest

    def _pull(
        self, reference: Reference, env: Mapping[str, str], host: str, stop: threading.Event
    ) -> tuple[Package, str]:
        from remuda.steps.resolving.images import find_image, pull
        from remuda.steps.resolving.registry import Registry

        registry = Registry(reference.registry, reference.repository, env, stop)
        manifest, digest = find_image(registry, reference.tag, host)
        if package := self._cache.find(_image_key(reference, digest)):
            return package, digest
        with self._cache.make_folder() as aside:
            pull(registry, manifest, aside, aside / "files")
            return self._cache.add(_image_key(reference, digest), aside / "files"), digest

    def _inside(self, package: Package, pinned: Reference, **facts: Any) -> Resolved:
        self._used[package.root] = (package, pinned, facts | {"remark": ""})
        folder = inner_folder(package.root, pinned.path, pinned.text)
        definition = read_definition(folder, pinned.file, root=package.root, shown=pinned.text)
        file, text = definition.name, definition.text
        return Resolved(
            reference=f"{pinned.text} {(folder / file).relative_to(package.root)}",
            kind=pinned.kind,
            digest=package.digest,
            folder=folder,
            root=package.root,
            file=file,
            text=text,
            pinned=replace(pinned, file=file),
            **facts,
        )

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())


def _substitute(reference: Reference, substitutes: Mapping[str, str]) -> str | None:
    name = f"builtin://{reference.path}"
    return substitutes.get(f"{name}@{reference.version}") or substitutes.get(name)


def _parse_substitute(text: str, instead_of: Reference) -> Reference:
    try:
        reference = parse_reference(text, Place(file="substitutes", line=1))
    except DefinitionError as error:
        raise ResolveError(f"the substitute for {describe(instead_of)} is not a valid reference: {error}") from None
    if reference.kind is ReferenceKind.DYNAMIC or (reference.kind is ReferenceKind.LOCAL and text[:1] != "/"):
        raise ResolveError(
            f"the substitute for {describe(instead_of)} is {text!r}; it must be a repository, an image, a builtin step "
            "or an absolute path"
        )
    return reference


def _restore_use(root: Path, origin: PackageOrigin) -> tuple[Package, Reference, dict[str, Any]]:
    """Return what the resolver remembers of a package in use, from what the agent's journal says about it."""
    text = origin.reference.partition(" ")[0]
    address, _, version = text.rpartition("@")
    if origin.kind is ReferenceKind.GIT:
        pinned = Reference(kind=origin.kind, text=text, url=address, version=version)
    else:
        registry, _, repository = address.partition("/")
        pinned = Reference(kind=origin.kind, text=text, registry=registry, repository=repository, tag=version)
    facts = {"commit": origin.commit, "version": origin.version, "remark": ""}
    return Package(root=root, digest=origin.digest), pinned, facts


def _git_key(where: git.Repository, commit: str) -> str:
    return "git-" + sha256(f"{where.url}\0{commit}".encode()).hexdigest()


def _image_key(reference: Reference, digest: str) -> str:
    """Return the cache key of an image in one repository: a policy may trust the same image in one, not in another."""
    return "oci-" + sha256(f"{reference.registry}/{reference.repository}\0{digest}".encode()).hexdigest()


async def _in_thread(call: Callable[[threading.Event], T]) -> T:
    """Run a function in a thread. It gets an event that is set when the caller no longer waits for the result."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(call, stop)
    finally:
        stop.set()


async def _to_the_end(call: Callable[[], T]) -> T:
    """Run `call` in a thread, to its end even if cancelled, because the caller then removes files that it uses."""
    future = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait({future})
        future.exception()
        raise
