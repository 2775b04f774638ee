"""Ed25519 signatures by the program `openssl`, since Python's own library has none.

The private key is a file that only whoever runs the step can read; its content never enters this process. `openssl` is
looked for in the folders of the system and gets an environment of its own, so that a job can put nothing in its place.
Anybody can check with the same program: `openssl pkeyutl -verify -pubin -inkey KEY -rawin -in FILE -sigfile FILE.sig`.
"""

import hashlib
import os
import shutil
import stat
import subprocess
from pathlib import Path

from remuda.stdsteps.checkout.workdir import make_temporary
from remuda.stdsteps.common.errors import PlatformError, StepError

FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PLACE = "/tmp"
"""Where things lie for a moment: not where a variable of the job says, for that could be a folder of the job."""
_HEAD = bytes.fromhex("302a300506032b6570032100")
"""How a public Ed25519 key begins in its standard form; 32 bytes follow."""
LARGEST_KEY_BYTES = 16 * 1024


def check_key(key: Path) -> None:
    """Refuse a private key that others than its owner can read, or that is not there."""
    try:
        status = key.stat()
    except OSError as error:
        raise PlatformError(
            f"the signing key {key} cannot be used: {error.strerror}. "
            f"Make one with: openssl genpkey -algorithm ed25519 -out {key}"
        ) from None
    if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
        raise PlatformError(f"others can read the signing key {key}; make it private with: chmod 600 {key}")


def public_key(key: Path) -> bytes:
    """The public half of a private key, in its standard form."""
    return _checked(_openssl("pkey", "-in", str(key), "-pubout", "-outform", "DER"), str(key))


def read_public_key(text: str) -> bytes:
    """The same from a public key as people keep it (PEM)."""
    if len(text) > LARGEST_KEY_BYTES or "PUBLIC KEY" not in text:
        raise StepError("the public key is none; it begins with -----BEGIN PUBLIC KEY-----")
    with make_temporary("remuda-key-", place=PLACE) as folder:
        path = Path(folder) / "key.pem"
        path.write_text(text)
        return _checked(_openssl("pkey", "-pubin", "-in", str(path), "-outform", "DER"), "the public key")


def key_id(public: bytes) -> str:
    """What a key is called: the digest of its public half."""
    return f"sha256:{hashlib.sha256(public).hexdigest()}"


def sign(key: Path, data: bytes) -> bytes:
    """The signature of these bytes. They are handed over where nobody else can change them."""
    with make_temporary("remuda-sign-", place=PLACE) as folder:
        source, target = Path(folder) / "data", Path(folder) / "signature"
        source.write_bytes(data)
        _openssl("pkeyutl", "-sign", "-rawin", "-inkey", str(key), "-in", str(source), "-out", str(target))
        return target.read_bytes()


def is_signed(public: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the signature is that of these bytes by this key."""
    with make_temporary("remuda-verify-", place=PLACE) as folder:
        key, source, sealed = (Path(folder) / name for name in ("key", "data", "signature"))
        key.write_bytes(public)
        source.write_bytes(data)
        sealed.write_bytes(signature)
        words = ["-pubin", "-keyform", "DER", "-inkey", str(key), "-in", str(source), "-sigfile", str(sealed)]
        done = _run("pkeyutl", "-verify", "-rawin", *words)
    return done.returncode == 0 and b"Verified Successfully" in done.stdout


def _checked(public: bytes, name: str) -> bytes:
    if len(public) != len(_HEAD) + 32 or not public.startswith(_HEAD):
        raise StepError(f"{name} is no Ed25519 key")
    return public


def _openssl(*words: str) -> bytes:
    done = _run(*words)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise PlatformError(f"openssl {words[0]} failed: {said[0] if said else f'exit code {done.returncode}'}")
    return done.stdout


def _run(*words: str) -> "subprocess.CompletedProcess[bytes]":
    program = shutil.which("openssl", path=FOLDERS)
    if program is None:
        raise PlatformError("openssl is not installed on this machine; install version 3 or newer")
    return subprocess.run(
        [program, *words],
        env={"PATH": FOLDERS, "LC_ALL": "C", "HOME": os.devnull},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
