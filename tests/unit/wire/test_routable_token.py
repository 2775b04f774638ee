import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.wire.routable_token import KEYS, TokenError, decode, encode, to_base36, token_hash

SHORT = "EL25d_AKXDUtqLnIQHEpkG86MQM.01.0r1ajj2i3"
LONG = (
    "++++++++++++++++++++LB4hkKqprRab1Y3A72WqTPSDo2FS1t1qgJTIhL2O_kp90C8s8cL55xHQtmr-eVFugNkcwt0PZgzKqS3RI2ku4fBj"
    "OjN3NWUxMTI2NHNnc2YKZzozdzVlMTEyNjRzZ3NmCmg6M3c1ZTExMjY0c2dzZgpqOjN3NWUxMTI2NHNnc2YKazozdzVlMTEyNjRzZ3NmCmw6"
    "M3c1ZTExMjY0c2dzZgptOjN3NWUxMTI2NHNnc2YKbzozdzVlMTEyNjRzZ3NmCnA6M3c1ZTExMjY0c2dzZgp1OjN3NWUxMTI2NHNnc2af"
    ".01.8c0kai99b"
)


def test_the_short_published_vector() -> None:
    token = decode(SHORT)
    assert (token.prefix, len(token.random), dict(token.routing)) == ("", 16, {"o": 1})
    assert encode(prefix="", routing={"o": 1}, random=token.random) == SHORT
    assert token.cell_id is None


def test_the_long_published_vector() -> None:
    assert len(LONG) == 333
    token = decode(LONG)
    assert (token.prefix, len(token.random)) == ("+" * 20, 65)
    assert dict(token.routing) == dict.fromkeys("cghjklmopu", 2**64 - 1)
    assert token.cell_id == 2**64 - 1


ROUTINGS = st.dictionaries(st.sampled_from(sorted(KEYS)), st.integers(0, 2**64 - 1)).filter(
    lambda routing: bool(routing.keys() & {"c", "o"})
)
TOKENS = st.builds(
    lambda prefix, routing, random: encode(prefix=prefix, routing=routing, random=random),
    st.sampled_from(["", "glrt-", "glrtr-", "acme-glrt-"]),
    ROUTINGS,
    st.binary(min_size=16, max_size=40),
)


@given(st.sampled_from(["", "glrt-", "x" * 20]), ROUTINGS, st.binary(min_size=16, max_size=65))
def test_encoded_tokens_are_decoded(prefix: str, routing: dict[str, int], random: bytes) -> None:
    token = decode(encode(prefix=prefix, routing=routing, random=random))
    assert (token.prefix, token.random, dict(token.routing)) == (prefix, random, routing)


@given(TOKENS, st.data())
def test_a_damaged_token_is_refused(token: str, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters().filter(lambda char: char != token[position]))
    with pytest.raises(TokenError):
        decode(token[:position] + other + token[position + 1 :])


@given(TOKENS, st.data())
def test_a_token_that_was_cut_off_is_refused(token: str, data: st.DataObject) -> None:
    with pytest.raises(TokenError):
        decode(token[: data.draw(st.integers(0, len(token) - 1))])


@given(
    st.one_of(
        st.text(),
        st.text("\ud800\udfff.01az-_+", max_size=400),
        st.from_regex(r"[A-Za-z0-9_-]{27,300}\.01\.[0-9a-z]{9}", fullmatch=True),
    )
)
def test_invalid_text_always_raises_a_token_error(text: str) -> None:
    with pytest.raises(TokenError):
        decode(text)


@pytest.mark.parametrize(
    ("routing", "random", "prefix", "message"),
    [
        ({"x": 1, "c": 1}, b"0" * 16, "", "unknown routing keys: x"),
        ({"p": 1}, b"0" * 16, "", "its cell"),
        ({"c": 1}, b"0" * 15, "", "random bytes"),
        ({"c": 1}, b"0" * 66, "", "random bytes"),
        ({"c": 1}, b"0" * 16, "p" * 21, "prefix"),
    ],
)
def test_invalid_parts_are_refused(routing: dict[str, int], random: bytes, prefix: str, message: str) -> None:
    with pytest.raises(TokenError, match=message):
        encode(prefix=prefix, routing=routing, random=random)


@given(st.integers(0, 2**70))
def test_base36(number: int) -> None:
    assert int(to_base36(number), 36) == number
    with pytest.raises(ValueError):
        to_base36(-1 - number)


@given(st.text())
def test_any_text_has_a_hash(text: str) -> None:
    assert len(token_hash(text)) == 64
    assert token_hash(text) != token_hash(text + "x")
