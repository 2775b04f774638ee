"""Parameters that the cell does not honour are told to the caller or refused, never dropped in silence."""

from typing import Any, ClassVar

import msgspec
import pytest

from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.edge.unsupported_fields import Unsupported, find_ignored, header_text


class Params(msgspec.Struct, kw_only=True):
    unsupported: ClassVar = Unsupported(
        ignored={"wiki_enabled": (True, "auto")}, refused={"mirror": (False,), "import_url": ()}
    )
    name: str = ""
    other: int = msgspec.field(name="_other", default=0)


def test_unknown_parameters_are_told() -> None:
    assert find_ignored({"name": "x", "_other": 2, "new": 1, "a": [1]}, Params) == ["a", "new"]


def test_values_that_change_nothing_are_not() -> None:
    values = {"wiki_enabled": "true", "mirror": False, "import_url": "", "labels": [], "x": None, "id": 3, "page": 2}
    assert find_ignored(values, Params) == []
    assert find_ignored({"wiki_enabled": False}, Params) == ["wiki_enabled"]
    assert find_ignored({"user_id": 3}, Params, ["user_id"]) == []


@pytest.mark.parametrize("values", [{"mirror": "true"}, {"import_url": "https://x.org/a.git"}])
def test_what_would_change_the_meaning_of_the_call_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(ApiError) as refused:
        find_ignored(values, Params)
    assert refused.value.status == 400
    assert next(iter(values)) in str(refused.value.body)


class Link(msgspec.Struct, kw_only=True):
    unsupported: ClassVar = Unsupported(refused={"secret": ("no",)})
    name: str = ""
    kind: str = msgspec.field(name="type", default="")


class Assets(msgspec.Struct, kw_only=True):
    links: list[Link] = []
    main: Link | None = None
    data: dict[str, Any] = {}


class Nested(msgspec.Struct, kw_only=True):
    assets: Assets | None = None
    by_name: dict[str, Link] = {}


def test_unknown_parameters_inside_of_others_are_told() -> None:
    links = [{"name": "a", "type": "b"}, {"name": "c", "path": "/d", "kind": "e", "id": 7, "empty": ""}]
    values = {"assets": {"links": links, "main": {"path": "/x"}, "sources": ["zip"], "data": {"any": 1}}}
    expected = ["assets.links.id", "assets.links.kind", "assets.links.path", "assets.main.path", "assets.sources"]
    assert find_ignored(values, Nested) == expected
    assert find_ignored({"by_name": {"one": {"name": "a", "path": "b"}}}, Nested) == ["by_name.path"]
    assert find_ignored({"assets": None, "by_name": {}}, Nested) == []


def test_what_would_change_the_meaning_is_refused_inside_of_others() -> None:
    assert find_ignored({"assets": {"links": [{"secret": "no"}]}}, Nested) == []
    with pytest.raises(ApiError) as refused:
        find_ignored({"assets": {"links": [{"secret": "yes"}]}}, Nested)
    assert "assets.links.secret" in str(refused.value.body)


def test_other_types_of_parameters_take_everything() -> None:
    assert find_ignored({"a": 1}, dict) == []


def test_the_header_has_only_plain_names() -> None:
    assert header_text(["a_b", "x\r\nSet-Cookie: y", "ü"]) == "a_b, ?"
    assert len(header_text([f"n{number}" for number in range(1000)]).split(", ")) == 100
