"""The step packages that come with the agent (`builtin://NAME`): lists them, chooses a version, and unpacks them.

Each step needs a folder, so a package is unpacked into the cache once. Its definition is always read from the agent's
own files, not from the cache."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.lib.dataclass import dataclass
from remuda.steps.language.reading import read_step
from remuda.steps.resolving.errors import ResolveError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

DEFINITION = "func.yml"
_VERSION = re.compile(r"\d+(\.\d+){0,2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundled:
    name: str
    version: str
    text: str
    files: "Traversable"


def find_packages() -> "Traversable":
    folder = Path(__file__).parents[2] / "stdsteps"
    if folder.is_dir():
        return folder
    # Slow to import, and only a packed agent needs it.
    from importlib.resources import files

    return files("remuda").joinpath("stdsteps")


class Builtins:
    """All step packages in a folder, named by their path in it. `NAME@...` is another version of the package NAME."""

    def __init__(self, folder: "Traversable") -> None:
        self._folder = folder
        self._folders: dict[str, list[Traversable]] | None = None
        self._read: dict[str, list[Bundled]] = {}

    def names(self) -> list[str]:
        if self._folders is None:
            self._folders = {}
            for path, folder in _packages(self._folder, ""):
                self._folders.setdefault(path.partition("@")[0], []).append(folder)
        return sorted(self._folders)

    def choose(self, name: str, version: str) -> Bundled:
        """Return the newest version of the package `name` that begins with `version`, which is empty or like 1, 1.2 or
        1.2.3. Raises ResolveError if there is none."""
        if name not in self.names():
            import difflib  # only a mistake pays for it

            near = difflib.get_close_matches(name, self.names(), n=1)
            hint = f"did you mean builtin://{near[0]}?" if near else f"it has {', '.join(self.names())}"
            raise ResolveError(f"this agent has no step builtin://{name}; {hint}")
        if name not in self._read:
            assert self._folders is not None
            self._read[name] = [_read(name, folder) for folder in self._folders[name]]
        versions = {package.version: package for package in self._read[name]}
        chosen = choose_version(list(versions), version)
        if chosen is None:
            raise ResolveError(
                f"builtin://{name}@{version}: this agent has only version {', '.join(sorted(versions))} of it; "
                "use that, or another agent"
            )
        return versions[chosen]


def choose_version(available: Sequence[str], prefix: str) -> str | None:
    numbers = _numbers(prefix) if prefix else ()
    if numbers is None:
        return None
    fitting = [
        (version, text) for text in available if (version := _numbers(text)) and version[: len(numbers)] == numbers
    ]
    return max(fitting)[1] if fitting else None


def unpack(package: Bundled, target: Path) -> None:
    """Write a package to a new folder. Files that begin with `#!` become executable: a zip keeps no permissions."""
    target.mkdir(parents=True)
    for path, item in _walk(package.files, ""):
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        data = item.read_bytes()
        file.write_bytes(data)
        file.chmod(0o755 if data.startswith(b"#!") else 0o644)


def _numbers(text: str) -> tuple[int, ...] | None:
    text = text.removeprefix("v")
    return tuple(int(part) for part in text.split(".")) if _VERSION.fullmatch(text) else None


def _packages(folder: "Traversable", path: str) -> "Iterator[tuple[str, Traversable]]":
    with suppress(FileNotFoundError):
        for item in folder.iterdir():
            if not item.is_dir():
                continue
            inner = f"{path}{item.name}"
            if item.joinpath(DEFINITION).is_file():
                yield inner, item
            else:
                yield from _packages(item, f"{inner}/")


def _walk(folder: "Traversable", path: str) -> "Iterator[tuple[str, Traversable]]":
    for item in folder.iterdir():
        if item.name.endswith(".py") or item.name == "__pycache__":
            continue  # code of the step, not part of its package
        if item.is_dir():
            yield from _walk(item, f"{path}{item.name}/")
        else:
            yield f"{path}{item.name}", item


def _read(name: str, folder: "Traversable") -> Bundled:
    text = folder.joinpath(DEFINITION).read_text(encoding="utf-8")
    version = read_step(text, file=f"builtin://{name}").spec.version
    if version is None:
        raise ResolveError(f"builtin://{name} has no version in its spec; it needs one, like 1.0.0")
    return Bundled(name=name, version=version, text=text, files=folder)
