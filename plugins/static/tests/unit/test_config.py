import re
from pathlib import Path

import msgspec
import pytest

from remuda_plugin_static.config import Config, Instance

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_has_every_setting() -> None:
    table = README.read_text().split("## Settings")[1].split("## How it works")[0]
    documented = {name for line in table.splitlines() for name in re.findall(r"`([a-zA-Z_.]+)`", line.split(" | ")[0])}
    settings = {field.encode_name for field in msgspec.structs.fields(Config)}
    settings |= {f"instances.NAME.{field.encode_name}" for field in msgspec.structs.fields(Instance)}
    assert settings <= documented


def test_the_default_folder_is_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/ci")
    assert str(Config().place) == "/home/ci/.local/state/fleeting-plugin-static"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert str(Config().place) == "/state/fleeting-plugin-static"
    assert str(Config(folder="~/here").place) == "/home/ci/here"


def test_a_machine_does_not_print_its_secrets() -> None:
    assert "secret" not in repr(Config(instances={"a": Instance(internal_addr="h", password="secret")}))
