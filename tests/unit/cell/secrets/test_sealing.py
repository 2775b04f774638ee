"""Sealed texts open only with their key and purpose; rotation and reload of the keys."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.errors import CellError
from remuda.cell.secrets.sealing import MARK, EncryptionKeys, SealError, Seals, format_key, key_of, new_key, read_key

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))


@given(text=st.text(), purpose=st.text(st.characters(codec="utf-8"), max_size=8))
def test_a_sealed_text_opens_with_its_key(text: str, purpose: str) -> None:
    seals = Seals(EncryptionKeys([KEY]))
    sealed = seals.seal(text, purpose)
    assert seals.unseal(sealed, purpose) == text
    assert sealed.isascii()
    assert seals.is_current(sealed)
    assert key_of(sealed) == seals.keys.primary


@given(offset=st.integers(0, 200), flip=st.integers(1, 255))
def test_a_text_with_a_changed_byte_does_not_open(offset: int, flip: int) -> None:
    seals = Seals(EncryptionKeys([KEY]))
    name, _, body = seals.seal("the secret", "p").partition(".")
    raw = bytearray(base64.b64decode(body))
    raw[offset % len(raw)] ^= flip
    with pytest.raises(SealError):
        seals.unseal(f"{name}.{base64.b64encode(raw).decode()}", "p")


def test_a_text_does_not_open_for_another_purpose() -> None:
    seals = Seals(EncryptionKeys([KEY]))
    with pytest.raises(SealError, match="damaged or changed"):
        seals.unseal(seals.seal("x", "variable"), "setting")


def test_a_missing_key_is_named() -> None:
    seals = Seals(EncryptionKeys([KEY]), where="the file")
    sealed = Seals(EncryptionKeys([OTHER])).seal("x", "p")
    with pytest.raises(SealError, match=f"key {key_of(sealed)}, which is not in the file"):
        seals.unseal(sealed, "p")


def test_malformed_texts_do_not_open() -> None:
    seals = Seals(EncryptionKeys([KEY]))
    for garbage in ("", ".", "..", f"{seals.keys.primary}.", f"{seals.keys.primary}.!!", f"{seals.keys.primary}.AAAA"):
        with pytest.raises(SealError):
            seals.unseal(MARK + garbage, "p")


def test_texts_of_releases_without_encryption_are_returned_unchanged() -> None:
    assert Seals(EncryptionKeys([KEY])).unseal("plain", "p") == "plain"
    assert key_of("plain") == ""


def test_older_keys_open_texts_and_a_new_key_is_loaded_when_a_text_names_it() -> None:
    old, both = EncryptionKeys([KEY]), EncryptionKeys([OTHER, KEY])
    running, rotated = Seals(old, lambda: both), Seals(both)
    before = running.seal("a", "p")
    assert rotated.unseal(before, "p") == "a"
    assert not rotated.is_current(before)
    assert running.unseal(rotated.seal("b", "p"), "p") == "b"
    assert rotated.is_current(running.seal("c", "p")), "after the reload the new key seals"


def test_a_key_file_without_the_current_key_is_not_loaded() -> None:
    seals = Seals(EncryptionKeys([KEY]), lambda: EncryptionKeys([OTHER]), where="the file")
    sealed = seals.seal("a", "p")
    with pytest.raises(CellError, match=f"the file lacks key {seals.keys.primary}"):
        seals.refresh()
    with pytest.raises(SealError, match="restore the key from a copy"):
        seals.unseal(Seals(EncryptionKeys([OTHER])).seal("b", "p"), "p")
    assert seals.unseal(sealed, "p") == "a"


def test_keys_stay_in_use_if_the_reload_fails() -> None:
    def fail() -> EncryptionKeys:
        raise CellError("the file is not there")

    seals = Seals(EncryptionKeys([KEY]), fail)
    with pytest.raises(SealError):
        seals.unseal(Seals(EncryptionKeys([OTHER])).seal("b", "p"), "p")
    assert seals.unseal(seals.seal("a", "p"), "p") == "a"


def test_equal_texts_are_sealed_differently() -> None:
    seals = Seals(EncryptionKeys([KEY]))
    assert seals.seal("same", "p") != seals.seal("same", "p")


def test_a_salt_is_replaced_after_a_number_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.cell.secrets.sealing._TEXTS_PER_SALT", 2)
    seals = Seals(EncryptionKeys([KEY]))
    sealed = [base64.b64decode(seals.seal("x", "p").partition(".")[2]) for _ in range(5)]
    assert len({raw[:16] for raw in sealed}) == 3


def test_keys_are_formatted_and_read() -> None:
    key = new_key()
    assert read_key(f" {format_key(key)}\n", "here") == key
    for invalid in ("", "short", format_key(key)[:-8], "é" * 44):
        with pytest.raises(CellError, match="here: this is no encryption key") as raised:
            read_key(invalid, "here")
        assert not invalid or invalid not in str(raised.value).replace("encryption", "")
    with pytest.raises(CellError, match="no encryption key"):
        EncryptionKeys([])
