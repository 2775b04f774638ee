"""The command line of a plugin's program."""

import json
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from remuda.fleeting.handshake import COOKIE
from remuda.fleeting.sdk import capabilities
from remuda.fleeting.serving import serve
from remuda.manager.config.plugin_schema import find_mismatches
from remuda.testing.instance_groups import PlainGroup, TableGroup


@pytest.mark.parametrize("word", ["version", "-version", "--version"])
def test_the_version_is_printed(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(TableGroup(), [word]) == 0
    assert capsys.readouterr().out == "Name: fleeting-plugin-table\nVersion: 1.2.3\n"


@pytest.mark.parametrize("cookie", [None, "other"])
def test_started_by_hand_it_prints_how_to_use_it(
    cookie: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(COOKIE, raising=False)
    if cookie is not None:
        monkeypatch.setenv(COOKIE, cookie)
    assert serve(TableGroup(), []) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert 'plugin = "fleeting-plugin-table"' in captured.err


def test_the_schema_of_the_configuration_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(TableGroup(), ["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    table_config = schema["$defs"]["TableConfig"]
    assert table_config["properties"]["max_size"] == {"type": "integer", "default": 10}
    assert table_config["additionalProperties"] is False


def test_a_setting_without_a_default_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    class Config(msgspec.Struct, frozen=True, kw_only=True):
        name: str

    class Named(PlainGroup):
        config_type = Config  # type: ignore[assignment]

    assert serve(Named(), ["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$defs"]["Config"]["required"] == ["name"]


def test_nested_tables_and_durations_are_in_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    class Disk(msgspec.Struct, frozen=True, kw_only=True):
        size: int = 1

    class Config(msgspec.Struct, frozen=True, kw_only=True):
        disks: dict[str, Disk] = {}
        wait: timedelta | None = None

    class Nested(PlainGroup):
        config_type = Config  # type: ignore[assignment]

    assert serve(Nested(), ["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert find_mismatches({"disks": {"a": {"size": 2}}, "wait": "30s"}, schema) == []
    assert find_mismatches({"wait": 30}, schema) == []
    wrong = {"disks": {"a": {"sise": 2}}, "wait": True}
    assert [where for where, _ in find_mismatches(wrong, schema)] == ["disks.a.sise", "wait"]


def test_a_mistake_of_the_author_is_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(PlainGroup, ["version"]) == 2  # type: ignore[arg-type]
    assert capsys.readouterr().err == (
        "remuda.fleeting.serve: PlainGroup is a class; an object of it is wanted: PlainGroup()\n"
    )


def test_installs_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "somewhere"
    program.write_text("the program")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("FLEETING_PLUGIN_PATH", str(tmp_path / "plugins"))
    assert serve(TableGroup(), ["bootstrap", "example.com/team/table"]) == 1
    assert "there is no folder" in capsys.readouterr().err
    (tmp_path / "plugins").mkdir()
    for _ in range(2):
        assert serve(TableGroup(), ["bootstrap", "example.com/team/table"]) == 0
        folder = Path(capsys.readouterr().out.strip())
        assert folder == tmp_path / "plugins/example.com/team/table/1.2.3"
        assert (folder / "plugin").read_text() == "the program"
    assert [path.name for path in (tmp_path / "plugins").iterdir()] == ["example.com"]


def test_unknown_words_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(TableGroup(), ["--help"]) == 2
    assert "Known are: version, schema, serve, bootstrap REPOSITORY." in capsys.readouterr().err


def test_capabilities_follow_from_methods() -> None:
    assert capabilities(TableGroup()) == {"heartbeat", "suspend_resume", "remuda.stats", "remuda.recover"}
    assert capabilities(PlainGroup()) == frozenset()
