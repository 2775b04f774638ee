"""Attestations of artifacts: in-toto statements in JSON with the digests of files and the job that made them. The step
`sign` writes them; the step `verify` and `remuda artifacts verify` compare files with them. Files are not trusted: a
job may have replaced a file, or a folder in its path, by a link or a pipe. No link is followed. Only regular files, and
symbolic links themselves, have a digest."""

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
"""The name of the statement's file."""
SUFFIX = ".sig"
"""The suffix of the signature's file."""
TYPE = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:remuda:artifacts:1"
LARGEST_BYTES = 64 * 1024 * 1024
_CHUNK = 256 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A parsed and valid attestation: digests by file name, and data about the job."""

    digests: Mapping[str, str]
    """SHA-256 by file name; of a link, the SHA-256 of its target path."""
    predicate: Mapping[str, Any] = field(default_factory=dict)


def format_statement(digests: Mapping[str, str], predicate: Mapping[str, Any]) -> bytes:
    """Return an attestation as JSON, ready to be signed. `predicate`: data about the job that made the files."""
    subject = [{"name": name, "digest": {"sha256": digests[name]}} for name in sorted(digests)]
    document = {"_type": TYPE, "subject": subject, "predicateType": PREDICATE, "predicate": dict(predicate)}
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def read_statement(data: bytes) -> Statement:
    """Parse an attestation. Raises StepError if it is invalid."""
    try:
        document = json.loads(data)
        for key, expected in (("_type", TYPE), ("predicateType", PREDICATE)):
            if document[key] != expected:
                raise StepError(f"the statement has another type: {document[key]!r}; {key} must be {expected!r}")
        digests = {str(subject["name"]): str(subject["digest"]["sha256"]) for subject in document["subject"]}
        return Statement(digests=digests, predicate=dict(document["predicate"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StepError("the file is not a statement about artifacts") from None


def find_problems(statement: Statement, names: Iterable[str], digest: Callable[[str], str | None]) -> list[str]:
    """Return a message for each of the files `names` that is missing, changed, or not in the attestation. `digest`:
    returns the digest of a file, None if the file does not exist."""
    messages: list[str] = []
    for name in names:
        signed, actual = statement.digests.get(name), digest(name)
        if signed is None:
            messages.append(f"{name}: not signed")
        elif actual is None:
            messages.append(f"{name}: signed, but missing")
        elif actual != signed:
            messages.append(f"{name}: changed since it was signed")
    return messages


def digest_below(root: Path, name: str) -> str | None:
    """Return the SHA-256 of the file `name` in `root`; of a link, that of its target path. None if the file does not
    exist or is neither a regular file nor a link. Raises StepError if it cannot be read."""
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
    """Return the SHA-256 of the entry `name` of a zip archive; of a link, that of its target path. None if there is no
    such entry. Raises StepError if the entry cannot be read."""
    from zipfile import BadZipFile  # not at the top: the steps `sign` and `verify` do not need it

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
