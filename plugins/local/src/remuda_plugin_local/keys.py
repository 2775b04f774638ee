"""SSH keys: of the group, of a machine, and the public key of the operator's."""

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
    """Public key as a line of `authorized_keys`. Raises PermanentError."""
    load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in key else load_pem_private_key
    try:
        public = load(key, None).public_key()
        return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    except Exception as error:
        raise PermanentError(f"the key of connector_config cannot be used: {error}") from error


def load_key(path: Path) -> bytes:
    """Read a key file, which is made if missing. The caller holds the group's lock."""
    if not path.exists():
        write_whole(path, new_key(), durable=True)
    return path.read_bytes()
