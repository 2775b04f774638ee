import re
from pathlib import Path

import msgspec
import pytest

from remuda_plugin_docker_machine.config import Config

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_has_every_setting() -> None:
    table = README.read_text().split("## Settings")[1].split("## How it works")[0]
    documented = {name for line in table.splitlines() for name in re.findall(r"`([a-z_]+)`", line.split(" | ")[0])}
    assert {field.encode_name for field in msgspec.structs.fields(Config)} <= documented


def test_the_store_is_docker_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MACHINE_STORAGE_PATH", raising=False)
    monkeypatch.setenv("HOME", "/home/ci")
    assert str(Config().place) == "/home/ci/.docker/machine"
    monkeypatch.setenv("MACHINE_STORAGE_PATH", "/store")
    assert str(Config().place) == "/store"
    assert str(Config(storage_path="~/here").place) == "/home/ci/here"


def test_names_begin_with_the_prefix() -> None:
    assert Config(machine_name="auto-%s").new_name("0a") == "remuda-auto-0a"
