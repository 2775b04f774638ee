"""Keys for SSH: the group's, a machine's own, and the public half of the operator's."""

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
    """A private key as OpenSSH writes it."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def public_half(key: bytes) -> str:
    """As one line of `authorized_keys`. PermanentError."""
    load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in key else load_pem_private_key
    try:
        public = load(key, None).public_key()
        return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    except Exception as error:
        raise PermanentError(f"the key of connector_config cannot be used: {error}") from error


def kept_key(path: Path) -> bytes:
    """The key of a file, which is made if there is none; call it under the group's lock."""
    if not path.exists():
        write_whole(path, new_key(), durable=True)
    return path.read_bytes()
