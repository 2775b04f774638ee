"""What programs say of themselves when they are asked by hand."""

from pathlib import Path

import pytest

from remuda.fleeting import program_info
from remuda.fleeting.errors import PermanentError
from remuda.fleeting.program_info import CAPABILITIES_KEY, ask_schema, ask_version
from remuda.manager.config.plugin_checks import look_at
from remuda.testing.instance_groups import PlainGroup, TableGroup, a_plugin, a_program
from remuda.testing.waiting import until


def test_a_plugin_of_ours_tells_its_settings_and_what_it_can(tmp_path: Path) -> None:
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
def test_who_does_not_tell_is_passed_over(tmp_path: Path, body: str) -> None:
    program = a_program(tmp_path, f"#!/bin/sh\n{body}\n")
    assert ask_schema(program) is None
    assert look_at(str(program)).schema is None


async def test_a_program_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_info, "SCHEMA_SECONDS", 0.3)
    monkeypatch.setattr(program_info, "SECONDS", 0.3)
    program = a_program(tmp_path, f"#!/bin/sh\nsleep 600 & echo $! >> {tmp_path}/pids; wait\n")
    assert ask_schema(program) is None
    with pytest.raises(PermanentError, match="no answer within"):
        ask_version(program)
    pids = (tmp_path / "pids").read_text().split()
    assert pids
    await until(lambda: not any(map(lives, pids)))


def lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_plugin_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETING_PLUGIN_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = look_at("nosuch:1.2")
    assert "a version of" in found.problem
    assert str(tmp_path) in found.problem
    assert "(none installed)" in found.problem
