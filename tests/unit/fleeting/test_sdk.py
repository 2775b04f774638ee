"""Error messages for an invalid plugin configuration, and for mistakes of a plugin's author."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.sdk import Plugin, find_mistake, read_config
from remuda.testing.instance_groups import PlainGroup


class Disk(StrEnum):
    SSD = "ssd"
    HDD = "hdd"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    labels: dict[str, str] = {}


class Config(msgspec.Struct, frozen=True, kw_only=True):
    machines: dict[str, Machine] = {}
    ports: list[int] = []
    size: Annotated[int, Meta(ge=1)] = 1
    name: Annotated[str, Meta(pattern="^[a-z]+$")] = "x"
    kind: Literal["a", "b"] = "a"
    price: float | None = None
    disk: Disk | None = None
    wait: timedelta = timedelta(seconds=30)
    pause: timedelta | None = None
    spare: Machine | None = None
    zones: list[Machine] = []
    folder: str


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"machines": []}, "machines has to be a table, not a list"),
        ({"machines": {"a": "h"}}, "machines.a has to be a table, not a text"),
        ({"machines": {"a": {"addr": "h"}}}, "there is no setting machines.a.addr; did you mean machines.a.address?"),
        ({"machines": {"a": {}}}, "machines.a.address is missing"),
        (
            {"machines": {"a": {"address": "h"}, "b": {"address": "h", "labels": {"x": "y", "z": 1}}}},
            "machines.b.labels.z has to be a text, not a whole number",
        ),
        ({"spare": {"adress": "h"}}, "there is no setting spare.adress; did you mean spare.address?"),
        ({"zones": [{"address": "h"}, {"q": 1}]}, "there is no setting zones[1].q; known are: address, labels"),
        ({"zones": [{"address": "h", "labels": {"z": 1}}]}, "zones[0].labels.z has to be a text, not a whole number"),
        ({"wait": "soon"}, "wait: 'soon' is not a duration; write one like 90s, 30m or 1h30m"),
        ({"wait": -1}, "wait: -1 is below 0"),
        ({"pause": True}, "pause has to be a span of time or nothing, not true or false"),
        ({"disk": "nvme"}, "disk has to be one of ssd, hdd, not nvme"),
        ({"disk": "sdd"}, "disk has to be one of ssd, hdd, not sdd; did you mean ssd?"),
        ({"ports": ["x"]}, "ports[0] has to be a whole number, not a text"),
        ({"size": 0}, "size has to be a whole number >= 1"),
        ({"size": True}, "size has to be a whole number, not true or false"),
        ({"name": "A"}, "name has to be a text matching regex '^[a-z]+$'"),
        ({"kind": "c"}, "kind has to be one of a, b, not c"),
        ({"price": "much"}, "price has to be a number or nothing, not a text"),
        ({"folder": None}, "folder has to be a text, not nothing"),
        ({"fodler": "x"}, "there is no setting fodler; did you mean folder?"),
    ],
)
def test_error_messages_for_invalid_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PermanentError) as caught:
        read_config(Config, {"folder": "/x", **settings})
    assert str(caught.value) == f"plugin_config: {message}"


def test_a_missing_setting_and_a_value_that_is_not_a_table_are_reported() -> None:
    with pytest.raises(PermanentError, match="plugin_config: folder is missing"):
        read_config(Config, None)
    with pytest.raises(PermanentError, match="has to be a table, not list"):
        read_config(Config, [])


@pytest.mark.parametrize(
    ("value", "seconds"), [("30s", 30), ("1h30m", 5400), (90, 90), (0.5, 0.5), ("PT2M", 120), ("2", 2)]
)
def test_durations_have_the_usual_formats(value: Any, seconds: float) -> None:
    config = read_config(Config, {"folder": "/x", "wait": value, "pause": value, "disk": "hdd"})
    assert config.wait == config.pause == timedelta(seconds=seconds)
    assert config.disk is Disk.HDD


@dataclass
class Wrong:
    folder: str = ""


class Nameless(PlainGroup):
    config_type = Wrong  # type: ignore[assignment]


class Untyped(Plugin[Config]):
    name = "untyped"
    init = update = increase = decrease = connect_info = PlainGroup.shutdown  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (PlainGroup(), ""),
        (PlainGroup, "PlainGroup is a class; an object of it is wanted: PlainGroup()"),
        (Wrong(), "Wrong is not a remuda.fleeting.Plugin; derive it from that class"),
        (Untyped(), "Untyped has no config_type; write config_type = Config, or NoConfig in the class"),
        (
            Nameless(),
            "config_type is Wrong; it has to be a class Config(msgspec.Struct, frozen=True, kw_only=True)",
        ),
    ],
)
def test_mistakes_of_the_author_are_reported(plugin: object, message: str) -> None:
    assert find_mistake(plugin) == message


def test_an_invalid_config_type_is_reported_by_read_config() -> None:
    with pytest.raises(PermanentError, match="config_type is Wrong; it has to be a class"):
        read_config(Wrong, {})  # type: ignore[type-var]
