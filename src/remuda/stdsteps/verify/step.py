"""Checks that files of the working directory are those that somebody has signed; the step fails where they are not."""

from pathlib import Path

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.file_selection import select
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import tell
from remuda.stdsteps.signatures.openssl import is_signed, key_id, read_public_key
from remuda.stdsteps.signatures.statements import (
    LARGEST_BYTES,
    NAME,
    SUFFIX,
    Statement,
    digest_below,
    problems,
    read_statement,
)

MOST_SHOWN = 20


def run(inputs: Inputs) -> None:
    text, name = inputs.text("public_key"), inputs.text("statement", NAME)
    paths = inputs.texts("paths", [])
    inputs.done()
    root = Path.cwd()
    public = read_public_key(text)
    statement = signed_statement(root / name, public)
    wrong = problems(statement, _wanted(root, statement, paths, name), lambda one: digest_below(root, one))
    for problem in wrong[:MOST_SHOWN]:
        say(f"ERROR: {problem}")
    if wrong:
        raise StepError(f"{len(wrong)} of the files are not those that were signed with the key {key_id(public)}")
    say(f"{len(statement.digests)} files are those that were signed with the key {key_id(public)}")
    tell(files=len(statement.digests), key_id=key_id(public), about=dict(statement.predicate))


def signed_statement(path: Path, public: bytes) -> Statement:
    """A statement that this key has signed."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES)
        with path.with_name(path.name + SUFFIX).open("rb") as file:
            signature = file.read(1024)
    except OSError as error:
        raise StepError(f"there is no signed statement {path.name} here: {error}") from None
    if not is_signed(public, data, signature):
        raise StepError(f"{path.name} was not signed with the key {key_id(public)}, or was changed since")
    return read_statement(data)


def _wanted(root: Path, statement: Statement, paths: list[str], name: str) -> list[str]:
    """Which files to look at: those that are named, else all that the statement speaks of."""
    if not paths:
        return sorted(statement.digests)
    found = select(root, paths, untracked=False) - {name, name + SUFFIX}
    if not found:
        raise StepError("input paths: no files match, so there is nothing that could be verified")
    return sorted(one for one in found if digest_below(root, one) is not None)
