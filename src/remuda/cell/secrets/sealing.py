"""How a text becomes unreadable without a key, and readable again.

Decided here: the form of a sealed text, and how keys are named. A sealed text begins with a character that no text of a
person begins with, and names its key; so texts from before there were keys, and texts of an older key, can be told from
the others. Which keys there are is decided in `remuda.cell.secrets.key_files`, what is sealed in
`remuda.cell.secrets.sealed_store`.

AES-256-GCM with a random nonce is good for some billion texts with the same key, which a busy cell writes in weeks.
Therefore no text is sealed with a key itself: each process derives a key of its own from it and a random salt, and a
new one after a million texts.

Invariant: a text that was sealed with another key, or changed since, or is of another purpose, raises SealError; it
never opens as something else.
"""

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
    """A sealed text cannot be opened; temporary, because an operator can bring the key back."""


class EncryptionKeys:
    """Keys by their ids; the first one seals, all of them open."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise CellError("there is no encryption key; give at least one")
        self.by_id = {key_id(key): key for key in keys}
        self.primary = key_id(keys[0])


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def key_id(key: bytes) -> str:
    """The name of a key, which tells nothing about it."""
    return hashlib.sha256(b"remuda key id" + key).hexdigest()[:12]


def written_key(key: bytes) -> str:
    """A key as it stands in a file or in the environment."""
    return base64.b64encode(key).decode()


def read_key(text: str, where: str) -> bytes:
    """CellError when it is none; the text itself is never repeated."""
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
    """Seals and opens texts. `reread` is asked for the keys again when a text names one that is not known (yet)."""

    def __init__(
        self, keys: EncryptionKeys, reread: Callable[[], EncryptionKeys] | None = None, *, where: str = "the settings"
    ) -> None:
        self._keys = keys
        self._reread = reread
        self._where = where
        self._salt = b""
        self._left = 0

    @property
    def keys(self) -> EncryptionKeys:
        return self._keys

    def refresh(self) -> None:
        """Take up keys that were added or removed meanwhile.

        CellError when they cannot be read, or are without the one that has sealed so far: that one leaves only long
        after a newer one has come, so these are another cell's, or what is left of an accident.
        """
        if self._reread is not None:
            keys = self._reread()
            if self._keys.primary not in keys.by_id:
                raise CellError(f"{self._where} is without key {self._keys.primary}, which is in use; bring it back")
            self._keys = keys

    def seal(self, text: str, purpose: str) -> str:
        # Two threads may do this at the same time: then there is a salt too many, or one is used for a text more.
        if self._left <= 0:
            self._salt, self._left = secrets.token_bytes(_SALT_BYTES), _TEXTS_PER_SALT
        self._left -= 1
        keys, salt = self._keys, self._salt
        nonce = secrets.token_bytes(_NONCE_BYTES)
        hidden = _cipher(keys.by_id[keys.primary], salt).encrypt(nonce, text.encode(), purpose.encode())
        return f"{MARK}{keys.primary}.{msgspec.to_builtins(salt + nonce + hidden)}"

    def is_current(self, text: str) -> bool:
        """Whether it is sealed with the key that seals now."""
        return text.startswith(f"{MARK}{self._keys.primary}.")

    def unseal(self, text: str, purpose: str) -> str:
        """The text; one that is not sealed is from before there were keys and comes back as it is."""
        if not text.startswith(MARK):
            return text
        name, _, body = text[1:].partition(".")
        key = self._keys.by_id.get(name)
        if key is None:
            with suppress(CellError):  # what is said below is the better advice
                self.refresh()
            key = self._keys.by_id.get(name)
        if key is None:
            raise SealError(
                f"what the cell keeps is encrypted with key {name}, which is not in {self._where}; "
                "bring the key back from where a copy of it is kept"
            )
        try:
            # Base64 by msgspec takes an eighth of the time that the standard library takes.
            raw = msgspec.convert(body, bytes)
            salt, nonce, hidden = (
                raw[:_SALT_BYTES],
                raw[_SALT_BYTES : _SALT_BYTES + _NONCE_BYTES],
                raw[_SALT_BYTES + _NONCE_BYTES :],
            )
            return _cipher(key, salt).decrypt(nonce, hidden, purpose.encode()).decode()
        except (InvalidTag, ValueError, msgspec.ValidationError):
            raise SealError(
                f"something that the cell keeps ({purpose}) cannot be opened with key {name}: it was damaged or "
                "changed; restore it from a backup"
            ) from None


def key_of(text: str) -> str:
    """The id of the key that a text is sealed with; empty when it is not sealed."""
    return text[1:].partition(".")[0] if text.startswith(MARK) else ""


@lru_cache(maxsize=4096)
def _cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, _CONTEXT + salt, "sha256"))
