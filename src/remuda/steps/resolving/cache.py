"""Cache of step packages on this machine, and of the commit or digest that each name last resolved to.

    packages/KEY/files        a package's files; folders are read-only
    packages/KEY/entry.json   the package's digest and size; the file's time is when the package was last used
    known/                    what names (a branch, a tag) last resolved to, for when their server cannot be reached
    new/                      temporary folders; abandoned ones are removed after a day

A key identifies one content forever (a commit, a digest): an entry appears whole, by a rename, and never changes.
Before each use it is checked against its digest, in full once per process and later only if a file seems changed; links
to its files in the folder of a job (`job_packages`) look like a change when they are made or removed. The check does
not protect from a job that runs as the agent's own user, which can write here. Above the size limit the least
recently used packages are removed, unless used within the last day: a job may still run them. All functions block."""

import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from remuda.lib.clock import Clock
from remuda.lib.dataclass import dataclass
from remuda.lib.files import write_whole
from remuda.lib.safe_paths import remove_tree
from remuda.steps.resolving import tree

LIMIT_BYTES = 4 * 1024**3
LEAST_AGE_SECONDS = 24 * 3600
FORGET_SECONDS = 90 * 24 * 3600
"""How long the cache remembers what a name resolved to, since it was last resolved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    root: Path
    digest: str


class PackageCache:
    """A folder with cached step packages. Any number of threads and processes may use it at the same time."""

    def __init__(self, folder: Path, *, clock: Clock, limit_bytes: int = LIMIT_BYTES) -> None:
        self._packages, self._known, self._new = folder / "packages", folder / "known", folder / "new"
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._checked: dict[str, tuple[str, str]] = {}
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Create the cache's folders. Steps of other users may open packages by path, but may not list them."""
        for folder, mode in ((self._packages.parent, 0o711), (self._packages, 0o711)):
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
            folder.chmod(mode)
        for folder in (self._known, self._new):
            folder.mkdir(mode=0o700, exist_ok=True)

    def find(self, key: str) -> Package | None:
        """Return the package and store that it was used now. None if missing, or changed: then it is removed."""
        folder = self._packages / key
        try:
            os.utime(folder / "entry.json", (self._clock.now(),) * 2)
            entry = json.loads((folder / "entry.json").read_bytes())
            digest = str(entry["digest"])
            stamp = tree.stamp_of(folder / "files")
            if self._checked.get(key) != (stamp, digest):
                if tree.digest_of(folder / "files") != digest:
                    raise ValueError("changed")
                self._checked[key] = (stamp, digest)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            self._discard(folder)
            return None
        return Package(root=folder / "files", digest=digest)

    @contextmanager
    def make_folder(self) -> Iterator[Path]:
        self.prepare()
        folder = Path(tempfile.mkdtemp(dir=self._new))
        try:
            yield folder
        finally:
            remove_tree(folder, ignore_errors=True)

    def add(self, key: str, files: Path) -> Package:
        """Move `files`, a folder in one from `make_folder`, into the cache as `key`. Raises OSError if that fails."""
        digest, size = tree.digest_of(files), tree.size_of(files)
        with self.make_folder() as aside:
            folder = aside / "package"
            folder.mkdir()
            files.rename(folder / "files")
            tree.protect(folder / "files")
            write_whole(folder / "entry.json", json.dumps({"digest": digest, "bytes": size}).encode())
            os.utime(folder / "entry.json", (self._clock.now(),) * 2)
            folder.chmod(0o755)
            # If another process was quicker, its package is as good.
            with suppress(OSError):
                folder.rename(self._packages / key)
        self._make_room()
        package = self.find(key)
        if package is None or package.digest != digest:
            raise OSError(
                f"cannot store the package in {self._packages}; check for a full disk and for other processes there"
            )
        return package

    def remember(self, name: str, facts: Mapping[str, Any]) -> None:
        self.prepare()
        write_whole(self._note(name), json.dumps(dict(facts)).encode())

    def recall(self, name: str) -> dict[str, Any]:
        try:
            facts = json.loads(self._note(name).read_bytes())
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}

    def _note(self, name: str) -> Path:
        return self._known / f"{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()}.json"

    def _make_room(self) -> None:
        with self._lock:
            now = self._clock.now()
            used: list[tuple[float, int, Path]] = []
            for file in self._packages.glob("*/entry.json"):
                with suppress(OSError, ValueError, KeyError, TypeError):
                    used.append((file.stat().st_mtime, int(json.loads(file.read_bytes())["bytes"]), file))
            total = sum(size for _, size, _ in used)
            for _, size, file in sorted(used):
                if total <= self._limit_bytes:
                    break
                with suppress(OSError):
                    if now - file.stat().st_mtime >= LEAST_AGE_SECONDS:
                        self._discard(file.parent)
                        total -= size
            for folder, age in ((self._new, LEAST_AGE_SECONDS), (self._known, FORGET_SECONDS)):
                for path in folder.iterdir():
                    with suppress(OSError):
                        if now - path.stat().st_mtime >= age:
                            remove_tree(path, ignore_errors=True) if path.is_dir() else path.unlink()

    def _discard(self, folder: Path) -> None:
        self._checked.pop(folder.name, None)
        with suppress(OSError), self.make_folder() as aside:
            folder.chmod(0o700)
            folder.rename(aside / "old")
