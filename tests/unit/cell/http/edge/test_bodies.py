"""Decoding of parameters from queries, forms, multipart and JSON bodies, with error messages and limits."""

from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.http.edge.bodies import (
    MAX_DEPTH,
    SLOWEST_BYTES_PER_SECOND,
    Body,
    convert,
    decode,
    decode_fast,
    find_nul,
    limit_silence,
    unfold,
)
from remuda.cell.http.edge.errors import ApiError, ClientGoneError
from remuda.lib.clock import VirtualClock


class Inner(msgspec.Struct):
    key: str
    value: int = 0


class Parameters(msgspec.Struct):
    name: str
    flag: bool = False
    size: int | None = None
    tags: list[str] = []
    inner: list[Inner] = []


class File(msgspec.Struct):
    with_nul: ClassVar[tuple[str, ...]] = ("content",)

    path: str
    content: str = ""
    values: dict[str, Any] = {}
    kind: str = msgspec.field(default="", name="type")


FORM = "application/x-www-form-urlencoded"


def test_query_form_and_json_give_the_same_parameters() -> None:
    expected = Parameters(name="x", flag=True, size=3, tags=["a", "b"], inner=[Inner("k", 1), Inner("l", 2)])
    form = b"name=x&flag=true&size=3&tags[]=a&tags[]=b&inner[][key]=k&inner[][value]=1&inner[][key]=l&inner[][value]=2"
    json = b'{"name":"x","flag":true,"size":3,"tags":["a","b"],"inner":[{"key":"k","value":1},{"key":"l","value":2}]}'
    assert decode(form, FORM, b"", Parameters) == expected
    assert decode(b"", "", form, Parameters) == expected
    assert decode(json, "application/json", b"name=overruled", Parameters) == expected
    assert decode(b'{"flag": "True", "size": "3"}', "application/json", b"name=x", Parameters).flag is True


def test_a_form_may_be_multipart() -> None:
    fields = (("name", "x & ü"), ("tags[]", "a"), ("tags[]", "b"), ("inner[][key]", "k"))
    parts = "".join(
        f'--X\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields
    )
    file = '--X\r\nContent-Disposition: form-data; name="size"; filename="f"\r\n\r\n3\r\n'
    body = f"{parts}{file}--X--\r\n".encode()
    parameters = decode(body, "multipart/form-data; boundary=X", b"flag=true", Parameters)
    assert parameters == Parameters(name="x & ü", flag=True, tags=["a", "b"], inner=[Inner("k")])
    many = b'--X\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 1001
    for invalid, content_type in ((body, "multipart/form-data"), (b"no parts", "multipart/form-data; boundary=X")):
        with pytest.raises(ApiError, match="cannot be read"):
            decode(invalid, content_type, b"", Parameters)
    with pytest.raises(ApiError, match="more than 1000 fields"):
        decode(many + b"--X--\r\n", "multipart/form-data; boundary=X", b"", Parameters)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"{}", {"error": "name is missing"}),
        (b"null", {"error": "name is missing"}),
        (b'{"name": 5}', {"error": "name is invalid"}),
        (b'{"name": "x", "size": "many"}', {"error": "size is invalid"}),
        (b'{"name": "x", "inner": [{"value": 1}]}', {"error": "inner[key] is missing"}),
        (b'{"name": "x", "inner": [{"key": "k", "value": "v"}]}', {"error": "inner[value] is invalid"}),
        (b'{"name": "x", "tags": [1]}', {"error": "tags is invalid"}),
        (b"[]", {"message": "400 Bad request - the body is not a JSON object"}),
    ],
)
def test_error_messages_for_invalid_parameters(raw: bytes, expected: dict[str, str]) -> None:
    with pytest.raises(ApiError) as refused:
        decode(raw, "application/json", b"", Parameters)
    assert (refused.value.status, refused.value.body) == (400, expected)


@given(st.binary(max_size=200), st.sampled_from([FORM, "application/json", ""]), st.binary(max_size=50))
def test_any_bytes_are_decoded_or_answered_with_400(raw: bytes, content_type: str, query: bytes) -> None:
    try:
        decode(raw, content_type, query, Parameters)
    except ApiError as error:
        status = error.status
    else:
        status = 200
    assert status in (200, 400)


@pytest.mark.parametrize("raw", [b'{"name": "\xff"}', b'{"unknown": ' + b"[" * 100_000])
def test_a_body_that_cannot_be_decoded_is_a_400_on_the_fast_path(raw: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        decode_fast(raw, {"query_string": b""}, b"application/json", msgspec.json.Decoder(Parameters), Parameters)
    assert refused.value.status == 400


def test_numbered_entries_of_a_list() -> None:
    pairs = [("a[0][key]", "A"), ("a[1][key]", "B"), ("a[1][value]", "2"), ("a[0][value]", "1"), ("b[1]", "x")]
    assert unfold(pairs) == {"a": [{"key": "A", "value": "1"}, {"key": "B", "value": "2"}], "b": {"1": "x"}}


@given(st.lists(st.tuples(st.text(alphabet="ab0[]", max_size=8), st.text(max_size=3))))
def test_any_names_unfold(pairs: list[tuple[str, str]]) -> None:
    assert isinstance(unfold(pairs), dict)


def create_body(*messages: dict[str, Any]) -> Body:
    remaining = list(messages)

    async def receive() -> dict[str, Any]:
        return remaining.pop(0)

    return Body(receive)


async def test_a_body_is_read_up_to_its_limit() -> None:
    pieces: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"abc", "more_body": True},
        {"type": "http.request", "body": b"de"},
    ]
    assert await create_body(*pieces).read(5) == b"abcde"
    with pytest.raises(ApiError) as refused:
        await create_body(*pieces).read(4)
    assert refused.value.status == 413
    with pytest.raises(ClientGoneError):
        await create_body(pieces[0], {"type": "http.disconnect"}).read(100)


@given(levels=st.integers(1, 2 * MAX_DEPTH), kind=st.sampled_from([(b'{"a":', b"1", b"}"), (b"[", b"", b"]")]))
def test_json_has_a_limit_of_depth(levels: int, kind: tuple[bytes, bytes, bytes]) -> None:
    begin, middle, end = kind
    body = b'{"x":' + begin * (levels - 1) + (middle or b"1") + end * (levels - 1) + b"}"
    if levels <= MAX_DEPTH:
        assert set(decode(body, "application/json", b"", dict[str, Any])) == {"x"}
    else:
        with pytest.raises(ApiError) as refused:
            decode(body, "application/json", b"", dict[str, Any])
        assert refused.value.status == 400


async def test_a_body_below_the_minimum_rate_times_out() -> None:
    clock = VirtualClock()

    def create_receive(size: int, pause: float) -> Any:
        async def receive() -> dict[str, Any]:
            clock.jump(pause)
            return {"type": "http.request", "body": b"x" * size, "more_body": True}

        return limit_silence(receive, 60, clock)

    trickling = create_receive(10, 10)
    for _ in range(6):
        await trickling()
    with pytest.raises(ApiError) as refused:
        await trickling()
    assert refused.value.status == 408
    slow = create_receive(SLOWEST_BYTES_PER_SECOND * 10, 10)
    for _ in range(100):
        await slow()


@pytest.mark.parametrize("number", [10**18, -(10**18), 2**64, 10**400])
def test_a_number_with_too_many_digits_is_invalid(number: int) -> None:
    class Numbered(msgspec.Struct):
        count: int

    assert convert({"count": str(10**18 - 1)}, Numbered).count == 10**18 - 1
    with pytest.raises(ApiError) as refused:
        convert({"count": number}, Numbered)
    assert (refused.value.status, refused.value.body) == (
        400,
        {"error": "count is invalid: a number has at most 18 digits"},
    )


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Parameters(name="x", tags=["a", "b"], inner=[Inner("k")]), ""),
        (Parameters(name="x\0"), "name"),
        (Parameters(name="x", tags=["a", "\0"]), "tags[1]"),
        (Parameters(name="x", inner=[Inner("k"), Inner("\0")]), "inner[1][key]"),
        (File(path="a", content="\0"), ""),
        (File(path="\0", content="\0"), "path"),
        (File(path="a", kind="\0"), "type"),
        (File(path="a", values={"b": {"c": [1, "\0"]}}), "values[b][c][1]"),
        (File(path="a", values={"\0": 1}), "values"),
    ],
)
def test_the_parameter_with_a_nul_is_named(value: msgspec.Struct, name: str) -> None:
    assert find_nul(value) == name
