"""Finds and reads the file in a folder that defines a step (`func.yml`, else `step.yml`), and finds the folder of a
local reference.

Inside a package no path leads out of it: neither `..` nor an absolute path nor a link. Errors do not reveal what is
outside either: the agent may have access where the job has none, so such targets are not even checked for existence."""

import os
import stat
from pathlib import Path, PurePosixPath

from remuda.lib.dataclass import dataclass
from remuda.lib.safe_paths import close_after
from remuda.steps.language.values import Reference
from remuda.steps.resolving.errors import ResolveError

NAMES = ("func.yml", "step.yml")
LARGEST_BYTES = 1024 * 1024


def local_folder(reference: Reference, base: Path, root: Path | None) -> tuple[Path, str]:
    """Return the folder of a local reference (a path relative to `base`), and the file name in it (empty if not given).
    Raises ResolveError if the folder is outside of `root`; None: no limit."""
    folder = Path(os.path.normpath(base / reference.path))
    if root is not None and not folder.is_relative_to(os.path.normpath(root)):
        raise _leads_out(reference.text)
    return folder, reference.file


def inner_folder(root: Path, path: str, shown: str) -> Path:
    """Return the folder at `path` in the package `shown`. Raises ResolveError if it leads out of the package."""
    folder = Path(os.path.normpath(root / path.lstrip("/")))
    if ".." in PurePosixPath(path).parts or not folder.is_relative_to(root):
        raise _leads_out(f"{shown} {path}")
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionFile:
    name: str
    text: str
    real: str
    """The path of the file without links."""


def read_definition(folder: Path, file: str, *, root: Path | None, shown: str) -> DefinitionFile:
    """Read the definition of the step in `folder`: `file` or, if empty, func.yml or else step.yml. No link may lead out
    of `root`, if given. `shown`: the reference, for messages. Raises ResolveError if the file is missing or invalid."""
    if file and (PurePosixPath(file).name != file or file in (".", "..")):
        raise ResolveError(f"{shown}: {file!r} is not a file name; name the folder in the reference's path")
    for name in (file,) if file else NAMES:
        path = folder / name
        _check_inside(os.path.realpath(path), path, root, shown)
        if not path.is_file():
            continue
        data, real = _read(path, shown)
        _check_inside(real, path, root, shown)
        if len(data) > LARGEST_BYTES:
            raise ResolveError(f"{shown}: {name} has more than {LARGEST_BYTES} bytes, the limit of a definition")
        try:
            return DefinitionFile(name=name, text=data.decode("utf-8-sig"), real=real)
        except UnicodeDecodeError as error:
            raise ResolveError(f"{shown}: {name} is not UTF-8: byte {error.start} is invalid") from None
    raise ResolveError(_missing(folder, file, root, shown))


def _check_inside(real: str, path: Path, root: Path | None, shown: str) -> None:
    if root is not None and not Path(real).is_relative_to(root.resolve()):
        raise _leads_out(f"{shown} {path.relative_to(root)}")


def _read(path: Path, shown: str) -> tuple[bytes, str]:
    """Return content and real path of a file, both from one descriptor, because the job may replace it any time."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise ResolveError(f"{shown}: {path.name} is not a regular file")
        return opened.read(LARGEST_BYTES + 1), _real_path(opened.fileno(), path)


def _real_path(file: int, path: Path) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{file}")
    except OSError:
        return os.path.realpath(path)


def _missing(folder: Path, file: str, root: Path | None, shown: str) -> str:
    place = str(folder) if root is None else f"folder {folder.relative_to(root)} of the package"
    if not folder.is_dir():
        import difflib  # only a mistake pays for it

        beside = _list_names(folder.parent, root) if folder.parent.is_dir() else []
        near = difflib.get_close_matches(folder.name, beside, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        if folder.name.endswith(".yaml"):
            hint = "; the name of a definition file ends in .yml"
        return f"step {shown} not found: {place} does not exist{hint}"
    names = file or " nor ".join(NAMES)
    others = [name for name in _list_names(folder, root) if name.endswith(".yml")]
    hint = f"; it has {', '.join(others[:5])}" if others else ""
    return f"step {shown} not found: {place} has {'neither ' if not file else 'no '}{names}{hint}"


def _list_names(folder: Path, root: Path | None) -> list[str]:
    """Return the sorted names in a folder, dangling links included; empty if it is outside of the package `root`."""
    with close_after(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as opened:
        if root is not None and not Path(_real_path(opened, folder)).is_relative_to(root.resolve()):
            return []
        return sorted(os.listdir(opened))


def _leads_out(text: str) -> ResolveError:
    return ResolveError(
        f"{text} leads out of the package that the calling step is in; put the step into that package, or name it by "
        "its repository or image"
    )
