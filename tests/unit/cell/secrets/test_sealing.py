"""What is sealed opens with its key and with nothing else."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.errors import CellError
from remuda.cell.secrets.sealing import MARK, EncryptionKeys, SealError, Seals, format_key, key_of, new_key, read_key

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))


@given(text=st.text(), purpose=st.text(st.characters(codec="utf-8"), max_size=8))
def test_what_is_sealed_opens_again(text: str, purpose: str) -> None:
    seals = Seals(EncryptionKeys([KEY]))
    hidden = seals.seal(text, purpose)
    assert seals.unseal(hidden, purpose) == text
    assert hidden.isascii()
    assert seals.is_current(hidden)
    assert key_of(hidden) == seals.keys.primary


@given(at=st.integers(0, 200), flip=st.integers(1, 255))
def test_a_changed_byte_never_opens(at: int, flip: int) -> None:
    seals = Seals(EncryptionKeys([KEY]))
    name, _, body = seals.seal("the secret", "p").partition(".")
    raw = bytearray(base64.b64decode(body))
    raw[at % len(raw)] ^= flip
    with pytest.raises(SealError):
        seals.unseal(f"{name}.{base64.b64encode(raw).decode()}", "p")


def test_another_purpose_does_not_open() -> None:
    seals = Seals(EncryptionKeys([KEY]))
    with pytest.raises(SealError, match="damaged or changed"):
        seals.unseal(seals.seal("x", "variable"), "setting")


def test_a_key_that_is_missing_is_named() -> None:
    seals = Seals(EncryptionKeys([KEY]), where="the file")
    hidden = Seals(EncryptionKeys([OTHER])).seal("x", "p")
    with pytest.raises(SealError, match=f"key {key_of(hidden)}, which is not in the file"):
        seals.unseal(hidden, "p")


def test_garbage_is_told_apart() -> None:
    seals = Seals(EncryptionKeys([KEY]))
    for garbage in ("", ".", "..", f"{seals.keys.primary}.", f"{seals.keys.primary}.!!", f"{seals.keys.primary}.AAAA"):
        with pytest.raises(SealError):
            seals.unseal(MARK + garbage, "p")


def test_texts_from_before_there_were_keys_stay_as_they_are() -> None:
    assert Seals(EncryptionKeys([KEY])).unseal("plain", "p") == "plain"
    assert key_of("plain") == ""


def test_older_keys_open_and_a_new_key_is_taken_up_when_a_text_names_it() -> None:
    old, both = EncryptionKeys([KEY]), EncryptionKeys([OTHER, KEY])
    running, rotated = Seals(old, lambda: both), Seals(both)
    before = running.seal("a", "p")
    assert rotated.unseal(before, "p") == "a"
    assert not rotated.is_current(before)
    assert running.unseal(rotated.seal("b", "p"), "p") == "b"
    assert rotated.is_current(running.seal("c", "p")), "it seals with the new key from now on"


def test_keys_without_the_one_in_use_are_not_taken_up() -> None:
    seals = Seals(EncryptionKeys([KEY]), lambda: EncryptionKeys([OTHER]), where="the file")
    hidden = seals.seal("a", "p")
    with pytest.raises(CellError, match=f"the file is without key {seals.keys.primary}"):
        seals.refresh()
    with pytest.raises(SealError, match="bring the key back"):
        seals.unseal(Seals(EncryptionKeys([OTHER])).seal("b", "p"), "p")
    assert seals.unseal(hidden, "p") == "a"


def test_keys_that_cannot_be_read_again_stay() -> None:
    def gone() -> EncryptionKeys:
        raise CellError("the file is not there")

    seals = Seals(EncryptionKeys([KEY]), gone)
    with pytest.raises(SealError):
        seals.unseal(Seals(EncryptionKeys([OTHER])).seal("b", "p"), "p")
    assert seals.unseal(seals.seal("a", "p"), "p") == "a"


def test_equal_texts_look_different() -> None:
    seals = Seals(EncryptionKeys([KEY]))
    assert seals.seal("same", "p") != seals.seal("same", "p")


def test_a_new_salt_comes_after_many_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.cell.secrets.sealing._TEXTS_PER_SALT", 2)
    seals = Seals(EncryptionKeys([KEY]))
    hidden = [base64.b64decode(seals.seal("x", "p").partition(".")[2]) for _ in range(5)]
    assert len({raw[:16] for raw in hidden}) == 3


def test_keys_are_written_and_read() -> None:
    key = new_key()
    assert read_key(f" {format_key(key)}\n", "here") == key
    for wrong in ("", "short", format_key(key)[:-8], "é" * 44):
        with pytest.raises(CellError, match="here: this is no encryption key") as raised:
            read_key(wrong, "here")
        assert not wrong or wrong not in str(raised.value).replace("encryption", "")
    with pytest.raises(CellError, match="no encryption key"):
        EncryptionKeys([])
