"""`remuda artifacts verify`: whether files, or an archive of them, are those that a runner has signed.

What a statement is and what its digests cover stands in `stdsteps.statements`. The signature itself is checked with a
library here instead of the `openssl` that signed, so that no program is needed where somebody only wants to look.
"""

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
    problems,
    read_statement,
)

Verify = Callable[[bytes, bytes], bool]


def verify(
    *files: Annotated[Path, Parameter(help="Files, or archives that end in .zip; nothing means all that are signed.")],
    key: Annotated[Path, Parameter(help="The public key, PEM.")],
    statement: Annotated[Path, Parameter(help="What was signed; its signature lies beside it.")] = Path(NAME),
    output: Output = "text",
) -> int:
    """Check that files are those that a runner has signed.

    Try:

        remuda artifacts verify --key runner.pem
        remuda artifacts verify dist/app --key runner.pem
        remuda artifacts verify artifacts.zip --key runner.pem
    """
    is_signed, key_id = _read_key(key)
    archives = [file for file in files if file.suffix == ".zip" and _has_statement(file)]
    plain = [file for file in files if file not in archives]
    wrong: list[str] = []
    good = 0
    try:
        for archive in archives:
            count, found = _in_archive(archive, is_signed)
            good, wrong = good + count - len(found), wrong + [f"{archive}: {problem}" for problem in found]
        if plain or not archives:
            count, found = _in_folder(plain, statement, is_signed)
            good, wrong = good + count - len(found), wrong + found
    except StepError as error:
        wrong.append(str(error))
    if output == "json":
        print_json({"verified": not wrong, "files": good, "problems": wrong, "key_id": key_id})
    else:
        for problem in wrong:
            print(problem)
        print("not verified" if wrong else f"verified: {good} files, signed with {key_id}")
    return Exit.FAILURE if wrong else Exit.SUCCESS


def _read_key(path: Path) -> tuple[Verify, str]:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

    try:
        loaded = load_pem_public_key(_read(path))
    except ValueError:
        loaded = None
    if not isinstance(loaded, Ed25519PublicKey):
        raise BadInputError(f"--key {path}: no public Ed25519 key; it begins with -----BEGIN PUBLIC KEY-----")
    public = loaded

    def is_signed(data: bytes, signature: bytes) -> bool:
        try:
            public.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return is_signed, f"sha256:{hashlib.sha256(der).hexdigest()}"


def _in_folder(files: list[Path], statement: Path, is_signed: Verify) -> tuple[int, list[str]]:
    """How many were looked at, and what is wrong with them."""
    folder = Path(os.path.abspath(statement)).parent
    known = _checked(_read(statement), _read(statement.with_name(statement.name + SUFFIX)), is_signed, str(statement))
    names = [_name(file, folder) for file in files] or sorted(known.digests)
    return len(names), problems(known, names, lambda name: digest_below(folder, name))


def _in_archive(path: Path, is_signed: Verify) -> tuple[int, list[str]]:
    with open_zip(path) as archive:
        if NAME + SUFFIX not in archive.namelist():
            raise StepError(f"{path}: its statement has no signature")
        known = _checked(_inside(archive, NAME), _inside(archive, NAME + SUFFIX), is_signed, str(path))
        inside = Counter(entry.filename for entry in archive.infolist() if not entry.is_dir())
        twice = [f"{name}: twice in the archive" for name in sorted(inside) if inside[name] > 1]
        names = sorted({*known.digests, *inside} - {NAME, NAME + SUFFIX})
        return len(names), twice + problems(known, names, lambda name: digest_in(archive, name))


def _inside(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        with archive.open(name) as file:
            return file.read(LARGEST_BYTES)
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, RuntimeError, zlib.error) as error:
        raise StepError(f"{name}: cannot be read out of the archive: {error}") from None


def _checked(data: bytes, signature: bytes, is_signed: Verify, place: str) -> Statement:
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
    """As the statement calls it."""
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
