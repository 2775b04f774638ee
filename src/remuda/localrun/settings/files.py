"""Reads settings files and fills options with them. The command line wins over `.remuda.toml` in the top folder of the
repository, which wins over the user's file. A repository may come from anybody: its file may set only keys that are
declared safe, and paths below the repository. Invariant: a file that is not there costs nothing but a `stat`."""

import os
import stat
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

from remuda.lib.exits import BadInputError
from remuda.localrun.options import Options
from remuda.localrun.settings.places import REPOSITORY_FILE, project_folder, user_file
from remuda.localrun.sources.snapshot import PIPELINE_FILE

LIMIT_BYTES = 1024 * 1024
_OWN_FOLDERS = (".git", ".remuda")
"""Folders in the top folder of a repository whose files are not the repository's, but the user's."""

_O = TypeVar("_O", bound=Options)


class _File(NamedTuple):
    path: Path
    text: str
    is_own: bool
    """It is the user's file, not a repository's."""

    def refuse(self, name: str, problem: str) -> NoReturn:
        """Raise BadInputError with the place of a key."""
        from remuda.manager.config.lines import find_lines, line_of

        line = line_of(name, find_lines(self.text))
        raise BadInputError(f"{self.path}{f':{line}' if line else ''}: {problem}")


class Settings(NamedTuple):
    """The values of settings files by the names of their options' fields, the strongest file last."""

    layers: tuple[Mapping[str, object], ...] = ()
    path: Path = Path(".")
    """The folder or file that they were read for."""

    def find_path(self, options: Options) -> Path:
        """Return the folder or file to use instead of `path`: for a subfolder, the top folder of the repository, if its
        settings name the pipeline file and the command line does not."""
        names_file = "file" not in options.given and self.layers and "file" in self.layers[-1]
        return project_folder(self.path) if names_file and self.path.is_dir() else self.path

    def apply(self, options: _O) -> _O:
        """Return the options with the values of the files for those that the command line did not set."""
        values: dict[str, object] = {}
        for field in fields(options):  # type: ignore[arg-type]
            name, facts = field.name, _facts(type(options), field.name)
            is_set = name in options.given
            own: object = getattr(options, name)
            if not is_set and (text := os.environ.get(facts.get("variable") or "", "")):
                is_set, own = True, text
            found = [layer[name] for layer in self.layers if name in layer]
            if facts.get("adds_up"):
                values[name] = tuple(each for part in (*found, own) for each in part)  # type: ignore[attr-defined]
            else:
                values[name] = own if is_set or not found else found[-1]
        return replace(options, **values)  # type: ignore[type-var]


def _facts(kind: type[Options], name: str) -> Mapping[str, str]:
    """Return what a field's declaration says about it. Subclasses repeat fields for the parser, without that."""
    for each in kind.__mro__:
        declared = each.__dict__.get("__dataclass_fields__", {}).get(name)
        if declared is not None and declared.metadata:
            metadata: Mapping[str, str] = declared.metadata
            return metadata
    return {}


def load_settings(path: Path) -> Settings:
    """Read the user's file and that of the repository around `path`, a folder or a file. Raises BadInputError with
    file and line if one has a mistake."""
    repository = project_folder(path) / REPOSITORY_FILE
    files = [(user_file(), True), (repository, False)]
    layers = [_read(file) if (file := _open(place, is_own)) is not None else {} for place, is_own in files]
    if not path.is_dir() or (path.resolve() != repository.parent.resolve() and (path / PIPELINE_FILE).exists()):
        # The command line names another pipeline file, or a folder that has its own.
        for layer in layers:
            layer.pop("file", None)
    return Settings(tuple(layers) if any(layers) else (), path)


def _open(path: Path, is_own: bool) -> _File | None:
    """Return the file; None if it does not exist. In a repository, links are refused, because messages show lines, and
    files of other users."""
    follow = 0 if is_own else os.O_NOFOLLOW
    try:
        # O_NONBLOCK: opening a FIFO would block.
        descriptor = os.open(path, os.O_RDONLY | follow | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = "is a symbolic link; write a file" if path.is_symlink() else f"cannot be read: {error.strerror}"
        raise BadInputError(f"{path}: {reason}") from None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BadInputError(f"{path}: is not a file; write one, or remove it")
        if is_own and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            from remuda.localrun.settings.ownership import refuse_writable

            refuse_writable(path, status)
        if not is_own:
            from remuda.localrun.settings.ownership import refuse_foreign

            refuse_foreign(path, path.parent, status.st_uid, path.parent.stat().st_uid)
        data = file.read(LIMIT_BYTES + 1)
    if len(data) > LIMIT_BYTES:
        raise BadInputError(f"{path}: larger than {LIMIT_BYTES} bytes")
    try:
        return _File(path, data.decode(), is_own)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInputError(f"{path}:{line}: is not UTF-8 text; save it as UTF-8") from None


def _read(file: _File) -> dict[str, object]:
    import tomllib

    from remuda.localrun.settings.keys import all_keys
    from remuda.pipeline.errors import printable, quote
    from remuda.pipeline.syntax.known_keys import nearest

    try:
        document = tomllib.loads(file.text)
    except RecursionError:
        raise BadInputError(f"{file.path}: is nested too deeply") from None
    except ValueError as error:  # also a number with too many digits
        raise BadInputError(f"{file.path}: is not TOML: {printable(str(error), 300)}") from None
    keys, values = all_keys(), {}
    for name, value in document.items():
        key = keys.get(name)
        if key is None:
            hint = nearest(name, keys) or "`remuda run --help` lists the options; a key is one without its dashes"
            file.refuse(name, f"there is no setting {quote(name)}; {hint}")
        if not file.is_own and not key.is_safe:
            file.refuse(
                name,
                f"{name}: only your own settings may set this, because a repository can come from anybody; move it to "
                f"{user_file()}, or give --{name} on the command line",
            )
        try:
            values[key.field] = _resolve_paths(file, key.name, key.read(value))
        except TypeError:
            file.refuse(name, f"{name}: {printable(repr(value), 60)} does not fit; write {key.describe_kind()}")
    return values


def _resolve_paths(file: _File, name: str, value: object) -> object:
    """Return a value with absolute paths; relative ones are relative to the file. Raises BadInputError if a path of a
    repository's file leads out of the repository, or into `.git` or `.remuda`, or is a file of variables that git does
    not track: the user's secrets would be shown."""
    if isinstance(value, tuple):
        return tuple(_resolve_paths(file, name, each) for each in value)
    if not isinstance(value, Path):
        return value
    if file.is_own:
        return file.path.parent / value.expanduser()
    folder = Path(os.path.realpath(file.path.parent))
    try:
        real = Path(os.path.realpath(folder / value))
    except ValueError:
        file.refuse(name, f"{name}: no file can have this name")
    inside = real.relative_to(folder) if real.is_relative_to(folder) else Path(".git")
    if inside.parts[:1] and inside.parts[0].lower() in _OWN_FOLDERS:
        file.refuse(name, f"{name}: {value} is not in the repository; name a place in it, or give --{name}")
    if name == "variables-file" and not _is_tracked(folder, inside):
        file.refuse(name, f"{name}: git does not track {value}; add it to git, or give --{name}")
    return file.path.parent / value


def _is_tracked(folder: Path, name: Path) -> bool:
    """True if git tracks the file, or the folder is in no repository, so that nothing tells its files apart."""
    from remuda.localrun.sources.repository import Repository

    repository = Repository.at(folder)
    literal = f":(literal){name}"
    return repository is None or repository.ask("ls-files", "--error-unmatch", "--", literal) is not None
