"""`remuda artifacts verify`: checks that files, or an archive of them, are those that a runner has signed.

`remuda.stdsteps.signatures.statements` defines the signed statement, which lists files with their digests."""

import hashlib
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from remuda.cli.options import Output
from remuda.cli.render.listing import print_json
from remuda.lib.exits import BadInputError, Exit
from remuda.stdsteps.common.archive import open_zip
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.signatures.statements import (
    LARGEST_BYTES,
    NAME,
    SUFFIX,
    Statement,
    digest_below,
    digest_in,
    find_problems,
    read_statement,
)

Verify = Callable[[bytes, bytes], bool]


def verify(
    *files: Annotated[
        Path, Parameter(help="Files, or archives that end in .zip [default: all files in the statement].")
    ],
    key: Annotated[Path, Parameter(help="File with the public key (PEM).")],
    statement: Annotated[Path, Parameter(help="The signed statement. Its signature is next to it.")] = Path(NAME),
    output: Output = "text",
) -> int:
    """Check that files are unchanged since a runner signed them.

    Try:

        remuda artifacts verify --key runner.pem
        remuda artifacts verify dist/app --key runner.pem
        remuda artifacts verify artifacts.zip --key runner.pem
    """
    is_signed, key_id = _read_key(key)
    archives = [file for file in files if file.suffix == ".zip" and _has_statement(file)]
    plain = [file for file in files if file not in archives]
    problems: list[str] = []
    good = 0
    try:
        for archive in archives:
            count, own = _verify_archive(archive, is_signed)
            good, problems = good + count, problems + [f"{archive}: {problem}" for problem in own]
        if plain or not archives:
            count, own = _verify_folder(plain, statement, is_signed)
            good, problems = good + count, problems + own
    except StepError as error:
        problems.append(str(error))
    if output == "json":
        print_json({"verified": not problems, "files": good, "problems": problems, "key_id": key_id})
    else:
        for problem in problems:
            print(problem)
        print("not verified" if problems else f"verified: {good} files, signed with {key_id}")
    return Exit.FAILURE if problems else Exit.SUCCESS


def _read_key(path: Path) -> tuple[Verify, str]:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

    try:
        key = load_pem_public_key(_read(path))
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise BadInputError(f"--key {path}: not a public Ed25519 key; it begins with -----BEGIN PUBLIC KEY-----")
    public = key

    def is_signed(data: bytes, signature: bytes) -> bool:
        try:
            public.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return is_signed, f"sha256:{hashlib.sha256(der).hexdigest()}"


def _verify_folder(files: list[Path], statement: Path, is_signed: Verify) -> tuple[int, list[str]]:
    """Check files (all in the statement if `files` is empty) next to a statement. `is_signed`: checks its signature.
    Returns the number of files without a problem, and the problems found."""
    folder = Path(os.path.abspath(statement)).parent
    text = _read(statement)
    signature = _read(statement.with_name(statement.name + SUFFIX))
    signed = _check_statement(text, signature, is_signed, str(statement))
    names = [_name(file, folder) for file in files] or sorted(signed.digests)
    problems = find_problems(signed, names, lambda name: digest_below(folder, name))
    return len(names) - len(problems), problems


def _verify_archive(path: Path, is_signed: Verify) -> tuple[int, list[str]]:
    """Check all files of an archive that contains a statement. `is_signed`: checks its signature. Returns the number of
    files without a problem, and the problems found."""
    with open_zip(path) as archive:
        if NAME + SUFFIX not in archive.namelist():
            raise StepError(f"{path}: its statement has no signature")
        text, signature = _read_entry(archive, NAME), _read_entry(archive, NAME + SUFFIX)
        signed = _check_statement(text, signature, is_signed, str(path))
        entries = Counter(entry.filename for entry in archive.infolist() if not entry.is_dir())
        problems = [f"{name}: twice in the archive" for name in sorted(entries) if entries[name] > 1]
        good = 0
        for name in sorted({*signed.digests, *entries} - {NAME, NAME + SUFFIX}):
            own = find_problems(signed, [name], lambda name: digest_in(archive, name))
            good += entries[name] == 1 and not own
            problems += own
        return good, problems


def _read_entry(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        with archive.open(name) as file:
            return file.read(LARGEST_BYTES)
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, RuntimeError, zlib.error) as error:
        raise StepError(f"{name}: cannot be read out of the archive: {error}") from None


def _check_statement(data: bytes, signature: bytes, is_signed: Verify, place: str) -> Statement:
    if not is_signed(data, signature):
        raise StepError(f"{place}: not signed with this key, or changed since")
    return read_statement(data)


def _has_statement(path: Path) -> bool:
    try:
        with open_zip(path) as archive:
            return NAME in archive.namelist()
    except zipfile.BadZipFile:
        return False
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None


def _name(file: Path, folder: Path) -> str:
    """Return the file's path relative to the statement's folder. Raises BadInputError if the file is elsewhere."""
    try:
        return Path(os.path.abspath(file)).relative_to(folder).as_posix()
    except ValueError:
        raise BadInputError(f"{file} does not lie below {folder}, where the statement is") from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_BYTES)
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None
