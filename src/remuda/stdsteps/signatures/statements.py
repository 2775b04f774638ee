"""What a signature of artifacts says: a list of files with their digests, and the job that they are of.

Decided here is the form of a statement (an in-toto one, in JSON), what of a file its digest covers, and what is wrong
with files that do not fit a statement. Who may sign, and how, is in `signatures`. `sign` makes statements; `verify` and
`remuda artifacts verify` read them.

Files are read without trust: whoever made them may have put a link or a pipe in the place of a file, or of a folder on
the way to it. Nothing is followed, and only what is a file or a link itself counts.
"""

import hashlib
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.lib.dataclass import dataclass
from remuda.stdsteps.common.errors import StepError

if TYPE_CHECKING:
    from zipfile import ZipFile

NAME = "remuda-artifacts.json"
"""Of a statement, where it stands with the files."""
SUFFIX = ".sig"
"""What its signature has behind that."""
TYPE = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:remuda:artifacts:1"
LARGEST_BYTES = 64 * 1024 * 1024
_CHUNK = 256 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement whose form is right."""

    digests: Mapping[str, str]
    """SHA-256 by name; of a link, that of where it leads."""
    predicate: Mapping[str, Any] = field(default_factory=dict)


def statement_text(digests: Mapping[str, str], predicate: Mapping[str, Any]) -> bytes:
    """The bytes that are signed."""
    subject = [{"name": name, "digest": {"sha256": digests[name]}} for name in sorted(digests)]
    document = {"_type": TYPE, "subject": subject, "predicateType": PREDICATE, "predicate": dict(predicate)}
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def read_statement(data: bytes) -> Statement:
    """The same back; StepError where it is none."""
    try:
        document = json.loads(data)
        if document["_type"] != TYPE or document["predicateType"] != PREDICATE:
            raise StepError(f"the statement is of another kind: {document['predicateType']!r}")
        digests = {str(one["name"]): str(one["digest"]["sha256"]) for one in document["subject"]}
        return Statement(digests=digests, predicate=dict(document["predicate"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StepError("the statement is no statement about artifacts") from None


def problems(statement: Statement, names: Iterable[str], digest: Callable[[str], str | None]) -> list[str]:
    """What is wrong with files of these names; `digest` says what they are, None that there is none."""
    found: list[str] = []
    for name in names:
        signed, actual = statement.digests.get(name), digest(name)
        if signed is None:
            found.append(f"{name}: not signed")
        elif actual is None:
            found.append(f"{name}: signed, but not there")
        elif actual != signed:
            found.append(f"{name}: changed since it was signed")
    return found


def digest_below(root: Path, name: str) -> str | None:
    """What a file or link in a folder holds; None where there is no such thing."""
    *folders, last = name.split("/")
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            if part in ("", ".", ".."):
                return None
            inner = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        status = os.stat(last, dir_fd=here, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return hashlib.sha256(os.fsencode(os.readlink(last, dir_fd=here))).hexdigest()
        if not stat.S_ISREG(status.st_mode):
            return None
        with open(os.open(last, _FILE, dir_fd=here), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            return _digest(file.read)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StepError(f"{name}: cannot be read: {error.strerror}") from None
    finally:
        os.close(here)


def digest_in(archive: "ZipFile", name: str) -> str | None:
    """The same for an archive; a link's content is where it leads."""
    from zipfile import BadZipFile  # only here: managers take the names above from this module as they start

    try:
        with archive.open(name) as file:
            return _digest(file.read)
    except KeyError:
        return None
    except (BadZipFile, OSError, ValueError, EOFError, RuntimeError, zlib.error) as error:
        raise StepError(f"{name}: cannot be read out of the archive: {error}") from None


def _digest(read: Callable[[int], bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
