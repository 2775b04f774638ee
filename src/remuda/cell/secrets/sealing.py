"""Encrypts texts ("seals" them) and decrypts them.

A sealed text begins with a control character, which no other stored text begins with, and the id of its key. So plain
texts, and texts sealed with an older key, can be recognized.

AES-256-GCM with a random nonce is safe for some billion texts with the same key, which a busy cell writes in weeks.
Therefore the stored key is not used directly: each process derives its own key from it with a random salt, and a new
one after a million texts.

Invariant: a text that was sealed with an unknown key or for another purpose, or was changed, raises SealError."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from remuda.cell.errors import CellError, StoreError

MARK = "\x01"
KEY_BYTES = 32
_SALT_BYTES = 16
_NONCE_BYTES = 12
_TEXTS_PER_SALT = 1_000_000
_CONTEXT = b"remuda cell: sealed text"


class SealError(StoreError):
    """A sealed (encrypted) text cannot be decrypted. Treated as temporary: an operator can restore the missing key."""


class EncryptionKeys:
    """Encryption keys by their ids. The first one encrypts; all of them can decrypt."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise CellError("there is no encryption key; give at least one")
        self.by_id = {key_id(key): key for key in keys}
        self.primary = key_id(keys[0])


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def key_id(key: bytes) -> str:
    """Return the id of a key: a short hash, which may be stored and shown."""
    return hashlib.sha256(b"remuda key id" + key).hexdigest()[:12]


def format_key(key: bytes) -> str:
    return base64.b64encode(key).decode()


def read_key(text: str, where: str) -> bytes:
    """Decode a key. Raises CellError if the text is not a key; the message names `where` it is from, never the text."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise CellError(
            f"{where}: this is no encryption key; one is {KEY_BYTES} bytes in base64, "
            "as `remuda cell encryption generate` prints"
        )
    return key


class Seals:
    """Encrypts ("seals") and decrypts texts. `reread` loads unknown keys; error messages say `where` they are."""

    def __init__(
        self, keys: EncryptionKeys, reread: Callable[[], EncryptionKeys] | None = None, *, where: str = "the settings"
    ) -> None:
        self._keys = keys
        self._reread = reread
        self._where = where
        self._salt = b""
        self._texts_left = 0

    @property
    def keys(self) -> EncryptionKeys:
        return self._keys

    def refresh(self) -> None:
        """Read the keys again. Raises CellError if that fails or the key that this process encrypts with is missing:
        keys are removed only long after a newer one was added, so these are of another cell or incomplete."""
        if self._reread is not None:
            keys = self._reread()
            if self._keys.primary not in keys.by_id:
                raise CellError(
                    f"{self._where} lacks key {self._keys.primary}, which is in use; restore it from a copy"
                )
            self._keys = keys

    def seal(self, text: str, purpose: str) -> str:
        # Without a lock: if two threads do this at the same time, a salt is wasted or used once more.
        if self._texts_left <= 0:
            self._salt, self._texts_left = secrets.token_bytes(_SALT_BYTES), _TEXTS_PER_SALT
        self._texts_left -= 1
        keys, salt = self._keys, self._salt
        nonce = secrets.token_bytes(_NONCE_BYTES)
        hidden = _cipher(keys.by_id[keys.primary], salt).encrypt(nonce, text.encode(), purpose.encode())
        return f"{MARK}{keys.primary}.{msgspec.to_builtins(salt + nonce + hidden)}"

    def is_current(self, text: str) -> bool:
        return text.startswith(f"{MARK}{self._keys.primary}.")

    def unseal(self, text: str, purpose: str) -> str:
        """Decrypt a text. Raises SealError if its key is missing, or if it was changed or sealed for another purpose. A
        text that is not sealed was stored by a release without encryption, and is returned unchanged."""
        if not text.startswith(MARK):
            return text
        name, _, body = text[1:].partition(".")
        key = self._keys.by_id.get(name)
        if key is None:
            with suppress(CellError):  # the error below gives better advice
                self.refresh()
            key = self._keys.by_id.get(name)
        if key is None:
            raise SealError(
                f"secrets in the database are encrypted with key {name}, which is not in {self._where}; "
                "restore the key from a copy"
            )
        try:
            # msgspec decodes base64 in an eighth of the time of the standard library.
            raw = msgspec.convert(body, bytes)
            salt, nonce, hidden = (
                raw[:_SALT_BYTES],
                raw[_SALT_BYTES : _SALT_BYTES + _NONCE_BYTES],
                raw[_SALT_BYTES + _NONCE_BYTES :],
            )
            return _cipher(key, salt).decrypt(nonce, hidden, purpose.encode()).decode()
        except (InvalidTag, ValueError, msgspec.ValidationError):
            raise SealError(
                f"a secret in the database ({purpose}) cannot be decrypted with key {name}: it was damaged or changed; "
                "restore it from a backup"
            ) from None


def key_of(text: str) -> str:
    """Return the id of the key that a text is encrypted with; empty if it is not encrypted."""
    return text[1:].partition(".")[0] if text.startswith(MARK) else ""


@lru_cache(maxsize=4096)
def _cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, _CONTEXT + salt, "sha256"))
