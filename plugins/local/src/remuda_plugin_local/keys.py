"""Makes the SSH keys of a group and of its machines, and computes the public key of a private one."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)

from remuda.fleeting import PermanentError
from remuda.lib.files import write_whole


def new_key() -> bytes:
    """A new private key in OpenSSH's format."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def public_half(key: bytes) -> str:
    """Public key of a private key, as a line of `authorized_keys`. Raises PermanentError if the key cannot be read."""
    load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in key else load_pem_private_key
    try:
        public = load(key, None).public_key()
        return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    except Exception as error:
        raise PermanentError(f"the key of connector_config cannot be used: {error}") from error


def load_key(path: Path) -> bytes:
    """Read the file of a private key, and make it if it is missing. The caller must hold the group's lock."""
    if not path.exists():
        write_whole(path, new_key(), durable=True)
    return path.read_bytes()
