"""Ed25519 signatures by the program `openssl`, because Python's standard library does not support them. The private key
is a file that only the user of the step can read; its content never enters this process. `openssl` is searched in the
system's folders and gets a fixed environment, so that a job cannot replace it. To verify by hand: `openssl pkeyutl
-verify -pubin -inkey KEY -rawin -in FILE -sigfile FILE.sig`."""

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
"""Folder for temporary files without an agent. Not taken from a variable of the job, which could name a folder of the
job."""
_HEAD = bytes.fromhex("302a300506032b6570032100")
"""The prefix of a public Ed25519 key in DER; 32 bytes follow."""
LARGEST_KEY_BYTES = 16 * 1024


def check_key(key: Path) -> None:
    """Raise PlatformError if the private key is not a regular file, or other users have permissions on it."""
    try:
        status = key.stat()
    except OSError as error:
        raise PlatformError(
            f"cannot use the signing key {key}: {error.strerror}. "
            f"Create one with: openssl genpkey -algorithm ed25519 -out {key}"
        ) from None
    if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
        raise PlatformError(
            f"the signing key {key} must be a regular file that only its owner can access; run: chmod 600 {key}"
        )


def public_key(key: Path) -> bytes:
    """Return the public key, in DER, of a private key file. Raises StepError if it is not an Ed25519 key."""
    return _check_public(_openssl("pkey", "-in", str(key), "-pubout", "-outform", "DER"), str(key))


def read_public_key(text: str) -> bytes:
    """Convert a public key from PEM to DER. Raises StepError if the text is not a public Ed25519 key."""
    if len(text) > LARGEST_KEY_BYTES or "PUBLIC KEY" not in text:
        raise StepError("the text is not a public key; a public key begins with -----BEGIN PUBLIC KEY-----")
    with make_temporary("remuda-key-", place=PLACE) as folder:
        path = Path(folder) / "key.pem"
        path.write_text(text)
        result = _run("pkey", "-pubin", "-in", str(path), "-outform", "DER")
    if result.returncode:
        raise StepError("openssl cannot read the public key; check that it was copied completely")
    return _check_public(result.stdout, "the public key")


def key_id(public: bytes) -> str:
    """Return the id of a key: the SHA-256 of its public key in DER."""
    return f"sha256:{hashlib.sha256(public).hexdigest()}"


def sign(key: Path, data: bytes) -> bytes:
    """Return the signature of `data`, which openssl reads from a private folder, where no other user can change it."""
    with make_temporary("remuda-sign-", place=PLACE) as folder:
        source, target = Path(folder) / "data", Path(folder) / "signature"
        source.write_bytes(data)
        _openssl("pkeyutl", "-sign", "-rawin", "-inkey", str(key), "-in", str(source), "-out", str(target))
        return target.read_bytes()


def is_signed(public: bytes, data: bytes, signature: bytes) -> bool:
    """True if `signature` is a valid signature of `data` by the key `public` (in DER)."""
    with make_temporary("remuda-verify-", place=PLACE) as folder:
        key, source, signature_file = (Path(folder) / name for name in ("key", "data", "signature"))
        key.write_bytes(public)
        source.write_bytes(data)
        signature_file.write_bytes(signature)
        words = ["-pubin", "-keyform", "DER", "-inkey", str(key), "-in", str(source), "-sigfile", str(signature_file)]
        result = _run("pkeyutl", "-verify", "-rawin", *words)
    return result.returncode == 0 and b"Verified Successfully" in result.stdout


def _check_public(public: bytes, name: str) -> bytes:
    if len(public) != len(_HEAD) + 32 or not public.startswith(_HEAD):
        raise StepError(f"{name} is not an Ed25519 key")
    return public


def _openssl(*words: str) -> bytes:
    result = _run(*words)
    if result.returncode:
        lines = result.stderr.decode(errors="replace").strip().splitlines()
        raise PlatformError(f"openssl {words[0]} failed: {lines[0] if lines else f'exit code {result.returncode}'}")
    return result.stdout


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
