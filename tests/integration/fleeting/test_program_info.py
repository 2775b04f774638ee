"""Asks a plugin's program for its schema and its version: valid and invalid answers, timeouts and missing programs."""

from pathlib import Path

import pytest

from remuda.fleeting import program_info
from remuda.fleeting.errors import PermanentError
from remuda.fleeting.program_info import CAPABILITIES_KEY, ask_schema, ask_version
from remuda.manager.config.plugin_checks import look_at
from remuda.testing.instance_groups import PlainGroup, TableGroup, a_plugin, a_program
from remuda.testing.waiting import until


def test_the_schema_has_the_settings_and_capabilities(tmp_path: Path) -> None:
    schema = ask_schema(a_plugin(tmp_path / "able", TableGroup))
    assert schema is not None
    assert "max_size" in schema["$defs"]["TableConfig"]["properties"]
    assert {"heartbeat", "remuda.recover"} <= set(schema[CAPABILITIES_KEY])
    plain = look_at(str(a_plugin(tmp_path / "plain", PlainGroup)))
    assert (plain.problem, plain.capabilities, plain.schema is not None) == ("", (), True)


@pytest.mark.parametrize(
    "body",
    ["echo usage; exit 2", "echo nothing that is JSON", "echo '[1]'", "exit 0", "printf '\\377'"],
)
def test_a_program_without_a_schema_has_none(tmp_path: Path, body: str) -> None:
    program = a_program(tmp_path, f"#!/bin/sh\n{body}\n")
    assert ask_schema(program) is None
    assert look_at(str(program)).schema is None


async def test_program_that_hangs_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_info, "SCHEMA_SECONDS", 0.3)
    monkeypatch.setattr(program_info, "SECONDS", 0.3)
    program = a_program(tmp_path, f"#!/bin/sh\nsleep 600 & echo $! >> {tmp_path}/pids; wait\n")
    assert ask_schema(program) is None
    with pytest.raises(PermanentError, match="no answer within"):
        ask_version(program)
    pids = (tmp_path / "pids").read_text().split()
    assert pids
    await until(lambda: not any(map(is_alive, pids)))


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_missing_plugin_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETING_PLUGIN_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    program = look_at("nosuch:1.2")
    assert "a version of" in program.problem
    assert str(tmp_path) in program.problem
    assert "(none installed)" in program.problem
