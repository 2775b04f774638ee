"""What is said about a configuration that cannot be read."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.sdk import read_config


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    address: str


class Config(msgspec.Struct, frozen=True, kw_only=True):
    machines: dict[str, Machine] = {}
    ports: list[int] = []
    size: Annotated[int, Meta(ge=1)] = 1
    name: Annotated[str, Meta(pattern="^[a-z]+$")] = "x"
    kind: Literal["a", "b"] = "a"
    price: float | None = None
    folder: str


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"machines": []}, "machines has to be a table, not a list"),
        ({"machines": {"a": "h"}}, "machines[...] has to be a table, not a text"),
        ({"machines": {"a": {"addr": "h"}}}, "there is no setting machines[...].addr"),
        ({"machines": {"a": {}}}, "machines[...].address is missing"),
        ({"ports": ["x"]}, "ports[0] has to be a whole number, not a text"),
        ({"size": 0}, "size has to be a whole number >= 1"),
        ({"size": True}, "size has to be a whole number, not true or false"),
        ({"name": "A"}, "name has to be a text matching regex '^[a-z]+$'"),
        ({"kind": "c"}, "kind: Invalid enum value 'c'"),
        ({"price": "much"}, "price has to be a number or nothing, not a text"),
        ({"folder": None}, "folder has to be a text, not nothing"),
        ({"fodler": "x"}, "there is no setting fodler; did you mean folder?"),
    ],
)
def test_a_wrong_setting_is_told_in_words(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PermanentError) as caught:
        read_config(Config, {"folder": "/x", **given})
    assert str(caught.value) == f"plugin_config: {said}"


def test_what_is_missing_or_no_table_is_told() -> None:
    with pytest.raises(PermanentError, match="plugin_config: folder is missing"):
        read_config(Config, None)
    with pytest.raises(PermanentError, match="has to be a table, not list"):
        read_config(Config, [])
