"""Parses the differences of two commits as git prints them: the list of files (`--raw -z`) and their patches (`-p`)."""

import re

import msgspec

_RAW = re.compile(rb":(\d{6}) (\d{6}) [0-9a-f]+ [0-9a-f]+ ([A-Z])\d*")
_NO_MODE = "0"
_NO_FILE = "000000"


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """How one file differs between two commits."""

    old_path: str
    new_path: str
    a_mode: str
    """Mode in the old commit; 0 if the file is new."""
    b_mode: str
    new_file: bool
    renamed_file: bool
    deleted_file: bool
    diff: str = ""
    """The changed places in unified format, without the lines with the names."""
    too_large: bool = False
    """The patches of all files together are too large, so `diff` is empty."""


def parse_diff(raw: bytes, patches: bytes | None) -> list[FileDiff]:
    """Return the changed files. `raw` is git's list of them, `patches` what it prints for the same files in the same
    order; None if that is too large."""
    parts = iter(raw.split(b"\0"))
    # A line of a file never begins a line of a patch: it has a sign or a space before it.
    pieces = iter(re.split(rb"^diff --git ", patches or b"", flags=re.MULTILINE)[1:])
    files = []
    for part in parts:
        match = _RAW.fullmatch(part)
        if match is None:
            continue
        old_mode, new_mode, status = (group.decode() for group in match.groups())
        old_path = new_path = _text(next(parts, b""))
        if status in "RC":
            new_path = _text(next(parts, b""))
        # For a file that becomes a link, git prints two patches: one removes the file, one adds the link.
        own = [next(pieces, b"") for _ in range(2 if status == "T" else 1)]
        files.append(
            FileDiff(
                old_path=old_path,
                new_path=new_path,
                a_mode=old_mode if old_mode != _NO_FILE else _NO_MODE,
                b_mode=new_mode if new_mode != _NO_FILE else _NO_MODE,
                new_file=status == "A",
                renamed_file=status == "R",
                deleted_file=status == "D",
                diff="".join(map(_changed_lines, own)),
                too_large=patches is None,
            )
        )
    return files


def _changed_lines(patch: bytes) -> str:
    match = re.search(rb"^(?:@@ |Binary files )", patch, flags=re.MULTILINE)
    return _text(patch[match.start() :]) if match else ""


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
