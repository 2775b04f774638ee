"""Parameters that the cell does not honour are told to the caller or refused, never dropped in silence."""

from typing import ClassVar

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


def test_other_types_of_parameters_take_everything() -> None:
    assert find_ignored({"a": 1}, dict) == []


def test_the_header_has_only_plain_names() -> None:
    assert header_text(["a_b", "x\r\nSet-Cookie: y", "ü"]) == "a_b, ?"
    assert len(header_text([f"n{number}" for number in range(1000)]).split(", ")) == 100
