import re
from pathlib import Path

import msgspec
import pytest

from remuda_plugin_local.config import FOLDER, Config, QemuConfig

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("512", 512), ("64k", 65536), ("64M", 64 << 20), ("2g", 2 << 30)]
)
def test_units_of_memory(text: str, expected: int) -> None:
    assert Config(memory=text).memory_bytes == expected


def test_each_group_has_its_own_default_folder() -> None:
    assert str(Config(name="small").place) == f"{FOLDER}/small"
    assert str(Config(folder="/srv/x").place) == "/srv/x"


@pytest.mark.parametrize("name", ["", "Small", "a b", "1st", "a/b", "x" * 40])
def test_invalid_group_names_are_refused(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": name}, Config)


def test_the_readme_has_every_setting() -> None:
    table = README.read_text().split("## Settings")[1].split("## How it works")[0]
    documented = {name for line in table.splitlines() for name in re.findall(r"`([a-z_.]+)`", line.split(" | ")[0])}
    settings = {field.encode_name for field in msgspec.structs.fields(Config)}
    settings |= {f"qemu.{field.encode_name}" for field in msgspec.structs.fields(QemuConfig)}
    assert settings <= documented


def test_the_schema_describes_every_setting() -> None:
    schema = msgspec.json.schema(Config)["$defs"]
    for kind in ("Config", "QemuConfig"):
        for name, rule in schema[kind]["properties"].items():
            assert "description" in rule or "allOf" in rule or "anyOf" in rule, name
