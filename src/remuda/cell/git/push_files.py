"""Stores the records of pushes as files: the implementation of `remuda.cell.git.port.Pushes`.

A process that serves a push holds a lock on a file `pushes/PROJECT-RANDOM`. The kernel drops the lock when the process
dies, so a file that nobody locks is an abandoned push. Who pushed which refs with which options is recorded in a second
file, the note, in the repository's folder `push-notes`. Only the pre-receive hook gets the options from git, so the
hook (`push_hook`) writes the note; for changes through the API the cell does.

Invariants: the file of an open push exists before any ref moves, and is removed only when the push's pipelines were
started. A note is written atomically. No text of a client becomes part of a path or of a command."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from remuda.cell.errors import StoreError
from remuda.cell.git.port import PushNote
from remuda.cell.git.push_hook import NOTES
from remuda.lib.files import InUseError, hold_lock, wait_for_lock, write_whole
from remuda.model.job import ProjectId

STALE_SECONDS = 2 * 3600
"""A push that has not moved its refs this long after its note never will."""
DELETED = "0" * 40


class PushFiles:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._open = root / "pushes"
        self._open.mkdir(mode=0o700, exist_ok=True)

    @contextmanager
    def begin(self, project_id: ProjectId) -> Iterator[Callable[[], None]]:
        name = f"{int(project_id)}-{secrets.token_hex(8)}"
        file, aside = self._open / name, self._open / f".{name}"
        with ExitStack() as stack:
            try:
                stack.enter_context(hold_lock(aside))
                # Locked first, so that no process takes it for an abandoned push.
                aside.rename(file)
            except OSError as error:
                reason = f"cannot record a push: {error.strerror or error}; check the disk of the data folder"
                raise StoreError(reason) from error
            yield lambda: file.unlink(missing_ok=True)

    def find_abandoned(self) -> dict[str, ProjectId]:
        abandoned = {}
        for file in sorted(self._open.iterdir()):
            number = file.name.partition("-")[0]
            try:
                if number.isdigit():
                    with hold_lock(file):
                        abandoned[file.name] = ProjectId(int(number))
            except InUseError:
                continue
        return abandoned

    def forget(self, name: str) -> None:
        (self._open / name).unlink(missing_ok=True)

    def add_note(self, repo: str, refs: Mapping[str, str], user_id: int) -> None:
        folder = self._notes(repo)
        text = "".join([f"user {user_id}\n", *(f"ref {sha} {ref}\n" for ref, sha in refs.items())])
        name = secrets.token_hex(8)
        try:
            for tries_left in (1, 0):
                folder.mkdir(mode=0o700, exist_ok=True)
                try:
                    write_whole(folder / name, text.encode())
                    return
                except FileNotFoundError:
                    # Another process has just removed the empty folder.
                    if not tries_left:
                        raise
        except OSError as error:
            raise StoreError(f"cannot record a push in {folder}: {error}") from error

    def has_notes(self, repo: str) -> bool:
        return self._notes(repo).exists()

    def notes(self, repo: str) -> list[PushNote]:
        folder = self._notes(repo)
        try:
            files = [file for file in folder.iterdir() if not file.name.startswith(".")]
            notes = [_parse_note(file) for file in files]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"cannot read {folder}: {error}") from error
        return sorted(notes, key=lambda note: note.written_at, reverse=True)

    def remove_notes(self, repo: str, notes: Sequence[PushNote], refs: Mapping[str, str], now: float) -> None:
        folder = self._notes(repo)
        for note in notes:
            is_over = all(sha == DELETED or refs.get(ref) == sha for ref, sha in note.refs.items())
            if is_over or note.written_at < now - STALE_SECONDS:
                with suppress(OSError):
                    (folder / note.name).unlink()
        with suppress(OSError):
            for unfinished in folder.glob(".*"):
                if unfinished.stat().st_mtime < now - STALE_SECONDS:
                    unfinished.unlink()
            folder.rmdir()

    def take_turn(self, repo: str) -> AbstractAsyncContextManager[None]:
        return wait_for_lock(self._root / repo / "acted-on.lock")

    def _notes(self, repo: str) -> Path:
        return self._root / repo / NOTES


def _parse_note(file: Path) -> PushNote:
    refs: dict[str, str] = {}
    options: list[str] = []
    user_id = None
    # Not splitlines: a ref's name may hold characters that Unicode counts as the end of a line.
    for number, line in enumerate(file.read_bytes().decode(errors="replace").split("\n")):
        kind, _, rest = line.partition(" ")
        # Options come last and are a client's text: lines after the first one are not trusted.
        if kind == "ref" and not options:
            sha, _, ref = rest.partition(" ")
            refs[ref] = sha
        elif kind == "option":
            options.append(rest)
        elif kind == "user" and not number and rest.isascii() and rest.isdigit():
            # Only the first line is written by the hook or the cell alone.
            user_id = int(rest)
    return PushNote(name=file.name, written_at=file.stat().st_mtime, refs=refs, options=tuple(options), user_id=user_id)
