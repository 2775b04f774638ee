"""The step `sign`: writes an attestation (in-toto statement) with the digests of files, and its signature. The key
belongs to the runner. The input `apart` says that the job's own steps cannot read the key, because they run as another
user or in a container and the job did not add this step itself; the output `protection` is then `enforced`, else
`advisory`. The step may have more rights than the job, so it follows no link that the job left, signs bytes that no
other process can change, and starts no program that the job chose."""

import os
import time
from contextlib import suppress
from pathlib import Path

from remuda.lib.clock import stamp
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.file_selection import select
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import write_outputs
from remuda.stdsteps.signatures.openssl import check_key, key_id, public_key, sign
from remuda.stdsteps.signatures.statements import NAME, SUFFIX, digest_below, format_statement

MOST_DIGESTS_SHOWN = 1000


def run(inputs: Inputs) -> None:
    key, name = Path(inputs.text("key")), inputs.text("statement", NAME)
    paths, exclude = inputs.texts("paths", []), inputs.texts("exclude", [])
    untracked, about = inputs.flag("untracked", False), inputs.mapping("about")
    is_apart = inputs.flag("apart", False)
    inputs.done()
    if "/" in name or name in ("", ".", ".."):
        raise StepError(f"input statement: must be the name of a file, not {name!r}")
    check_key(key)
    public = key_id(public_key(key))
    root = Path.cwd()
    own = {name, name + SUFFIX}
    chosen = select(root, paths, exclude, untracked=untracked) - own
    digests = {each: digest for each in chosen if (digest := digest_below(root, each)) is not None}
    protection = "enforced" if is_apart else "advisory"
    if not digests:
        say("WARNING: no files to sign")
        _remove(root, own)
        write_outputs(files=0, key_id=public, statement="", digests={}, protection=protection)
        return
    signed_at = stamp(time.time())
    text = format_statement(digests, {**about, "signed_at": signed_at, "key_id": public, "protection": protection})
    signature = sign(key, text)
    _remove(root, own)
    _write(root, name, text)
    _write(root, name + SUFFIX, signature)
    say(f"Signed {len(digests)} files with the key {public}; wrote {name} and {name}{SUFFIX}")
    if not is_apart:
        say("The job's own steps may be able to read the key, so the signature does not prove that the runner made it")
    shown = dict(sorted(digests.items())[:MOST_DIGESTS_SHOWN])
    write_outputs(files=len(digests), key_id=public, statement=name, digests=shown, protection=protection)


def _remove(root: Path, names: set[str]) -> None:
    """Delete an earlier run's attestation and its signature (`names`), because they describe other files."""
    for name in names:
        with suppress(FileNotFoundError):
            os.unlink(root / name)


def _write(root: Path, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(root / name, flags, 0o644), "wb") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(data)
