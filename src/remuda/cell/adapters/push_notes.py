"""What a push asked for beside its commits, from git's hook to the cell, through files that outlive both.

git tells the options of a push to its pre-receive hook alone. The hook leaves a note of them, with the refs that the
push moves, in the repository before any ref moves; the cell leaves such a note itself for what people commit or tag
through its API. It reads the notes when it acts on the refs, perhaps after a restart or in another process. What
options mean is decided in `remuda.cell.core.wishes`. Called by `remuda.cell.projects`.

Invariants: whoever sees a ref moved by a push can read the push's note; a note appears whole; nothing that a client
sent becomes part of a path or of a command: at the time of the hook git has not even checked the names of the refs.
"""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from remuda.cell.errors import StoreError
from remuda.lib.files import write_whole

FOLDER = "push-notes"
STALE_SECONDS = 2 * 3600
"""A note whose push has not moved its refs by now never will."""
DELETED = "0" * 40

USER_VARIABLE = "REMUDA_USER"
"""Names the person who pushes to the hook."""
REFUSED_VARIABLE = "REMUDA_REFUSED_REF"
"""Names the ref that this person may not push to."""

# Without a name or options a note is needed only to outdo an older one of the same ref and commit.
HOOK = f"""#!/bin/sh
count=${{GIT_PUSH_OPTION_COUNT:-0}}
folder=$GIT_DIR/{FOLDER}
[ "$count" -gt 0 ] || [ -n "${USER_VARIABLE}" ] || [ -d "$folder" ] || exit 0
tries=0
until mkdir -p "$folder" && note=$(mktemp "$folder/.XXXXXXXXXX"); do
  # The cell may just have removed the folder, because it was empty.
  tries=$((tries + 1))
  [ "$tries" -lt 3 ] || exit 1
done
{{
  printf 'user %s\\n' "${USER_VARIABLE}" || exit 1
  while read -r old new ref; do
    if [ "$ref" = "${REFUSED_VARIABLE}" ]; then
      rm -f "$note"
      echo "You may not push to $ref, which is protected; push to another branch, or ask a maintainer." >&2
      exit 1
    fi
    printf 'ref %s %s\\n' "$new" "$ref" || exit 1
  done
  i=0
  while [ "$i" -lt "$count" ]; do
    eval "option=\\${{GIT_PUSH_OPTION_$i}}"
    printf 'option %s\\n' "$option" || exit 1
    i=$((i + 1))
  done
}} >"$note" || exit 1
mv "$note" "$folder/${{note##*/.}}"
"""


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
        if kind == "ref":
            sha, _, ref = rest.partition(" ")
            refs[ref] = sha
        elif kind == "option":
            options.append(rest)
        elif kind == "user" and not number and rest.isascii() and rest.isdigit():
            # The first line is the hook's own; what a client sent begins further down.
            user_id = int(rest)
    return PushNote(file=file, written_at=file.stat().st_mtime, refs=refs, options=tuple(options), user_id=user_id)
