"""Reads files of secrets: variables whose values are masked in logs, of `--secrets-file` and `.remuda/secrets.env`. The
cell of a run gets them as masked variables of the project, which win over those of the pipeline file.

A line is `NAME=value` as in a file of variables, or `file:NAME=PATH`: jobs get such a variable as a file with the
content of PATH. A YAML or JSON file has a map from names to texts, to `{file: PATH}`, or to `{value: TEXT, type:
file}`. Invariant: an error or a warning names variables and never shows a value."""

import os
import re
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from remuda.lib.exits import BadInputError
from remuda.lib.masking import SHORTEST_LINE
from remuda.localrun.settings.places import FOUND_SECRETS

if TYPE_CHECKING:
    from remuda.localrun.sources.repository import Repository

LIMIT_BYTES = 1024 * 1024
MAX_VALUE = 10_000
"""Characters of a variable of a project."""

_FILE_LINE = re.compile(r"\s*file:(?=[A-Za-z_])")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Secret(NamedTuple):
    """The value of a variable that logs do not show."""

    value: str
    is_file: bool = False
    """Jobs get the path of a file with the value."""

    @property
    def mask_problem(self) -> str:
        """Say why the value is not masked in logs; empty if it is, except for very short lines of a longer value."""
        lines = [line for line in self.value.replace("\r\n", "\n").split("\n") if line.strip()]
        if all(len(line.strip()) < SHORTEST_LINE for line in lines):
            return f"it is shorter than {SHORTEST_LINE} characters"
        if any(not line.replace("\t", "").isprintable() for line in lines):
            return "it has control characters"
        return ""


def read_secrets(files: Sequence[Path], folder: Path, *, warns: bool = True) -> dict[str, Secret]:
    """Read the files, of which later ones win, and before them `.remuda/secrets.env` of `folder`, the top folder of the
    repository, if it exists. `warns`: print warnings. Raises BadInputError if a file cannot be used."""
    secrets: dict[str, Secret] = {}
    own = folder / FOUND_SECRETS
    if os.path.lexists(own):
        _check_owner(own, folder)
        if _check_ignored(folder):
            secrets |= _read_file(own, warns=warns)
        elif warns:
            _warn(f"{own} is not used, because its folder is in no git repository; give --secrets-file")
    for file in files:
        secrets |= _read_file(file, warns=warns)
    for name, secret in secrets.items():
        if warns and (problem := secret.mask_problem):
            _warn(f"{name} is not masked in logs: {problem}")
    return secrets


def _warn(text: str) -> None:
    print(f"remuda: WARNING: {text}", file=sys.stderr)


def _check_owner(file: Path, folder: Path) -> None:
    from remuda.localrun.settings.ownership import refuse_foreign

    refuse_foreign(file, folder, *(os.lstat(place).st_uid for place in (file, file.parent, folder)))


def _check_ignored(folder: Path) -> bool:
    """Return False if the file is in no repository. Raise BadInputError if git does not ignore it: the snapshot and the
    next commit would contain it. On a terminal, offer to add it to `.gitignore` first."""
    from remuda.localrun.settings.answers import confirm
    from remuda.localrun.sources.repository import Repository

    place, ignore, line = folder / FOUND_SECRETS, folder / ".gitignore", f"/{FOUND_SECRETS}"
    repository = Repository.at(folder)
    if repository is None:
        return False
    if _is_ignored(repository):
        return True
    if repository.ask("ls-files", "--error-unmatch", "--", FOUND_SECRETS) is not None:
        raise BadInputError(
            f"{place}: git tracks it, so everybody who has the repository has the secrets; replace them, run `git rm "
            f"--cached {FOUND_SECRETS}`, and add the line {line} to .gitignore"
        )
    if confirm(f"git does not ignore {FOUND_SECRETS}. Add it to .gitignore?"):
        text = ignore.read_bytes() if ignore.exists() else b""
        separator = b"" if not text or text.endswith(b"\n") else b"\n"
        with ignore.open("ab") as file:
            file.write(separator + f"{line}\n".encode())
        if _is_ignored(repository):
            return True
    raise BadInputError(
        f"{place}: git does not ignore it, so the next commit could publish the secrets; add this line to {ignore}:"
        f"\n\n    {line}"
    )


def _is_ignored(repository: "Repository") -> bool:
    return repository.ask("check-ignore", "--quiet", "--", FOUND_SECRETS) is not None


def _read_file(file: Path, *, warns: bool) -> dict[str, Secret]:
    text = _read_text(file, "", warns=warns)
    is_map = file.suffix in (".yml", ".yaml", ".json") or text.lstrip().startswith("{")
    secrets = _read_map(text, file) if is_map else _read_lines(text, file)
    for name, secret in secrets.items():
        if len(secret.value) > MAX_VALUE:
            raise BadInputError(f"{file}: {name}: longer than {MAX_VALUE} characters, which no variable can be")
        if "\0" in secret.value:
            raise BadInputError(f"{file}: {name}: has a NUL character, which no variable can have")
    return secrets


def _read_text(file: Path, what: str, *, warns: bool = False) -> str:
    """Read a text file. `what`: what precedes its name in errors. `warns`: warn if other users can read it."""
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            data = stream.read(LIMIT_BYTES + 1)
    except (OSError, ValueError) as error:
        raise BadInputError(f"{what}{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LIMIT_BYTES:
        raise BadInputError(f"{what}{file}: larger than {LIMIT_BYTES} bytes")
    if warns and stat.S_ISREG(mode) and mode & 0o044:
        _warn(f"other users of this machine can read {file}; run: chmod 600 {file}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInputError(f"{what}{file}: is not UTF-8 text") from None


def _read_lines(text: str, file: Path) -> dict[str, Secret]:
    from remuda.localrun.variables.assignments import read_dotenv

    # Each kind of line is parsed with the others blank, so that line numbers in errors are right.
    lines = text.split("\n")
    plain = "\n".join("" if _FILE_LINE.match(line) else line for line in lines)
    paths = "\n".join(_FILE_LINE.sub("", line) if _FILE_LINE.match(line) else "" for line in lines)
    secrets = {name: Secret(value) for name, value in read_dotenv(plain, str(file), is_secret=True).items()}
    for name, path in read_dotenv(paths, str(file), is_secret=True).items():
        secrets[name] = _read_content(name, path, file)
    return secrets


def _read_content(name: str, path: str, file: Path) -> Secret:
    """Read the content of a variable of type file. A relative path is relative to `file`, which names it."""
    place = file.parent / Path(path).expanduser()
    if file.parts[-2:] == Path(FOUND_SECRETS).parts and _leads_out(place, file.parent.parent):
        raise BadInputError(
            f"{file}: {name}: {place} is not in the repository; move the line to another file, and name that with "
            "--secrets-file or in your own settings"
        )
    return Secret(_read_text(place, f"{file}: {name}: "), is_file=True)


def _leads_out(place: Path, folder: Path) -> bool:
    try:
        return not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(folder))
    except ValueError:  # no file can have this name
        return True


def _read_map(text: str, file: Path) -> dict[str, Secret]:
    import yaml

    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Without its text, which would show the line.
        mark = getattr(error, "problem_mark", None)
        place = f"{file}:{mark.line + 1}" if mark else str(file)
        raise BadInputError(f"{place}: is not valid YAML") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise BadInputError(f"{file}: must be a map from names to values")
    for name in document:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadInputError(f"{file}: a name is not valid; use letters, digits and _, no digit first")
    return {name: _read_entry(name, value, file) for name, value in document.items()}


def _read_entry(name: str, value: object, file: Path) -> Secret:
    match value:
        case str(text):
            return Secret(text)
        case {"file": str(path), **rest} if not rest:
            return _read_content(name, path, file)
        case {"value": str(text), "type": ("file" | "env_var") as kind, **rest} if not rest:
            return Secret(text, is_file=kind == "file")
        case {"value": str(text), **rest} if not rest:
            return Secret(text)
    raise BadInputError(
        f"{file}: {name}: write a text (a number in quotes), {{file: PATH}}, or {{value: TEXT, type: file}}"
    )
