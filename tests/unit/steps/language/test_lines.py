import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.language.errors import CheckError
from remuda.steps.language.lines import export_texts, read_delegated, read_lines


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"x=1", "output file, line 1: one JSON object"),
        (b'{"name":"a","value":1}\n[1]', "line 2: one JSON object"),
        (b'{"value":1}', '"name" must be a string'),
        (b'{"name":"","value":1}', '"name" must be a string'),
        (b'{"name":5,"value":1}', '"name" must be a string'),
        (b'{"name":"a"}', '"value" of "a" is missing or null'),
        (b'{"name":"a","value":NaN}', "NaN is not valid JSON"),
        (b'{"name":"a","value":1e999}', "out of range"),
        (b'{"name":"a","value":"\xff"}', "not UTF-8"),
        (b'{"name":"a","value":"\\ud800"}', "half a surrogate pair"),
        (b'{"name":"a","value":' + b"[" * 500 + b"]" * 500 + b"}", "nested"),
        (b'{"name":"a","value":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested"),
    ],
)
def test_mistakes_are_reported_with_their_line(data: bytes, error: str) -> None:
    with pytest.raises(CheckError, match=error):
        read_lines(data)


def test_values_of_all_types_blank_lines_and_carriage_returns() -> None:
    data = b'\r\n{"name":"a","value":{"b":[1,null,2.0]}}\r\n  \n{"name":"c","value":false}'
    assert read_lines(data) == {"a": {"b": [1, None, 2]}, "c": False}
    assert read_lines(b"") == {}


def test_a_surrogate_pair_is_one_character() -> None:
    assert read_lines(b'{"name":"a","value":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_the_size_is_limited() -> None:
    with pytest.raises(CheckError, match="export file: has 20 bytes, and 10 are allowed"):
        read_lines(b" " * 20, what="export file", limit_bytes=10)


def test_exports_are_formatted_as_texts() -> None:
    values = {"A": "x", "B": True, "C": 1, "D": 1.5, "E": 1e-7, "F": 1.5e24, "G": -0.0, "H": 123456789012345678}
    assert export_texts(values) == {
        "A": "x",
        "B": "true",
        "C": "1",
        "D": "1.5",
        "E": "0.0000001",
        "F": "1500000000000000000000000",
        "G": "0",
        "H": "123456789012345680",
    }


@pytest.mark.parametrize("values", [{"a-b": ""}, {"": ""}, {"A": []}, {"A": None}, {"A": "x\0"}])
def test_invalid_exports_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(CheckError, match="export"):
        export_texts(values)


def test_a_delegated_result_is_read() -> None:
    assert read_delegated(b'{"status":"failure","outputs":{"a":1}}') == {"a": 1}
    assert read_delegated(b"{}") == {}
    for data in (b"[]", b'{"more":1}', b'{"outputs":[]}', b"x"):
        with pytest.raises(CheckError):
            read_delegated(data)


json_values = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8"), min_size=1), json_values)))
def test_written_values_are_read_again(pairs: list[tuple[str, object]]) -> None:
    data = "\n".join(json.dumps({"name": name, "value": value}) for name, value in pairs)
    assert read_lines(data.encode()) == dict(pairs)


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,namevlu1 \n\\', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(CheckError):
        read_lines(data)
