"""The step `verify`: fails if files of the working directory differ from those that the step `sign` signed."""

from pathlib import Path

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.file_selection import match_names, select
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import write_outputs
from remuda.stdsteps.signatures.openssl import is_signed, key_id, read_public_key
from remuda.stdsteps.signatures.statements import (
    LARGEST_BYTES,
    NAME,
    SUFFIX,
    Statement,
    digest_below,
    find_problems,
    read_statement,
)

MOST_SHOWN = 20


def run(inputs: Inputs) -> None:
    text, name = inputs.text("public_key"), inputs.text("statement", NAME)
    paths = inputs.texts("paths", [])
    inputs.done()
    root = Path.cwd()
    public = read_public_key(text)
    statement = read_signed_statement(root / name, public)
    names = _list_names(root, statement, paths, name)
    problems = find_problems(statement, names, lambda each: digest_below(root, each))
    for problem in problems[:MOST_SHOWN]:
        say(f"ERROR: {problem}")
    if problems:
        raise StepError(f"{len(problems)} files are missing, changed or not signed with the key {key_id(public)}")
    say(f"{len(names)} files are unchanged since they were signed with the key {key_id(public)}")
    write_outputs(files=len(statement.digests), key_id=key_id(public), about=dict(statement.predicate))


def read_signed_statement(path: Path, public: bytes) -> Statement:
    """Read an attestation. Raises StepError if it is missing, was changed, or was not signed by the key `public`."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES)
        with path.with_name(path.name + SUFFIX).open("rb") as file:
            signature = file.read(1024)
    except OSError as error:
        raise StepError(f"cannot read the signed statement {path.name}: {error}") from None
    if not is_signed(public, data, signature):
        raise StepError(f"{path.name} was not signed with the key {key_id(public)}, or was changed since")
    return read_statement(data)


def _list_names(root: Path, statement: Statement, paths: list[str], name: str) -> list[str]:
    """Return the files to verify: if `paths` is empty, all that the attestation lists; else those in `root` and in the
    attestation that match `paths`, without the file `name` and its signature. Raises StepError if nothing matches."""
    if not paths:
        return sorted(statement.digests)
    names = {each for each in select(root, paths, untracked=False) if digest_below(root, each) is not None}
    names = (names | match_names(root, paths, statement.digests)) - {name, name + SUFFIX}
    if not names:
        raise StepError("input paths: no files match, so there is nothing to verify")
    return sorted(names)
