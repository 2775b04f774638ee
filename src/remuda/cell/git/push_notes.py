"""What a push asked for beside its commits, from git's hook to the cell, through files that outlive both.

git tells the options of a push to its pre-receive hook (`push_hook`) alone. The hook leaves a note of them, with the
refs that the push moves, in the repository before any ref moves; the cell leaves such a note itself for what people
commit or tag through its API. It reads the notes when it acts on the refs, perhaps after a restart or in another
process. What options mean is decided in `remuda.cell.core.pipelines.push_options`. Called by
`remuda.cell.projects.projects`.

Invariants: whoever sees a ref moved by a push can read the push's note; a note appears whole; nothing that a client
sent becomes part of a path or of a command: at the time of the hook git has not even checked the names of the refs.
"""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from remuda.cell.errors import StoreError
from remuda.cell.git.push_hook import FOLDER
from remuda.lib.files import write_whole

STALE_SECONDS = 2 * 3600
"""A note whose push has not moved its refs by now never will."""
DELETED = "0" * 40


class PushNote(msgspec.Struct, frozen=True, kw_only=True):
    """One push: where it moves refs to, and its options."""

    file: Path
    written_at: float
    refs: dict[str, str]
    options: tuple[str, ...]
    user_id: int | None = None


def leave_note(repository: Path, refs: Mapping[str, str], user_id: int) -> None:
    """Note, before refs move, who moves them where, as the hook does for a push by git."""
    folder = repository / FOLDER
    text = "".join([f"user {user_id}\n", *(f"ref {sha} {ref}\n" for ref, sha in refs.items())])
    name = secrets.token_hex(8)
    try:
        for tries_left in (1, 0):
            folder.mkdir(mode=0o700, exist_ok=True)
            try:
                write_whole(folder / name, text.encode())
                return
            except FileNotFoundError:
                # The folder was empty, and whoever has just looked at it removed it.
                if not tries_left:
                    raise
    except OSError as error:
        raise StoreError(f"cannot note a push in {folder}: {error}") from error


def has_notes(repository: Path) -> bool:
    """Whether there are any, which a new one may have to outdo."""
    return (repository / FOLDER).exists()


def read_notes(repository: Path) -> list[PushNote]:
    """The notes in a repository, the newest first."""
    found = []
    folder = repository / FOLDER
    try:
        files = [file for file in folder.iterdir() if not file.name.startswith(".")]
        for file in files:
            text = file.read_bytes().decode(errors="replace")
            found.append(_note(file, text))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot read {folder}: {error}") from error
    return sorted(found, key=lambda note: note.written_at, reverse=True)


def options_for(notes: Sequence[PushNote], ref: str, sha: str) -> tuple[str, ...]:
    """The options of the push that brought this commit to this ref."""
    return next((note.options for note in notes if note.refs.get(ref) == sha), ())


def pusher_of(notes: Sequence[PushNote], ref: str, sha: str) -> int | None:
    """Who brought this commit to this ref."""
    return next((note.user_id for note in notes if note.refs.get(ref) == sha), None)


def forget(repository: Path, notes: Sequence[PushNote], done: Mapping[str, str], now: float) -> None:
    """Remove the notes of pushes that were acted on (`done`: where refs lead), and of those that never came about."""
    folder = repository / FOLDER
    for note in notes:
        over = all(sha == DELETED or done.get(ref) == sha for ref, sha in note.refs.items())
        if over or note.written_at < now - STALE_SECONDS:
            with suppress(OSError):
                note.file.unlink()
    with suppress(OSError):
        for left in folder.glob(".*"):
            if left.stat().st_mtime < now - STALE_SECONDS:
                left.unlink()
        folder.rmdir()


def _note(file: Path, text: str) -> PushNote:
    refs: dict[str, str] = {}
    options: list[str] = []
    user_id = None
    # Not splitlines: a ref's name may hold what else counts as the end of a line in Unicode.
    for number, line in enumerate(text.split("\n")):
        kind, _, rest = line.partition(" ")
        # Options come last and are a client's own words: after the first one nothing else is believed.
        if kind == "ref" and not options:
            sha, _, ref = rest.partition(" ")
            refs[ref] = sha
        elif kind == "option":
            options.append(rest)
        elif kind == "user" and not number and rest.isascii() and rest.isdigit():
            # The first line is the hook's own; what a client sent begins further down.
            user_id = int(rest)
    return PushNote(file=file, written_at=file.stat().st_mtime, refs=refs, options=tuple(options), user_id=user_id)
