"""The stored cleanup steps that a job on hold has postponed."""

from pathlib import Path

import pytest

from remuda.steps.engine.hold import closings, put_off_end


@pytest.mark.parametrize("damage", [b"\xff\x00\x01", b'{"argv": 3}', b"[]"], ids=["garbage", "another form", "a list"])
def test_a_damaged_line_loses_only_its_own_cleanup_step(tmp_path: Path, damage: bytes) -> None:
    for name in ("first", "second", "third"):
        (tmp_path / name).touch()
        put_off_end(tmp_path, ("end",), tmp_path / name)
    lines = (tmp_path / "closings").read_bytes().splitlines()
    (tmp_path / "closings").write_bytes(b"\n".join([lines[0], damage, lines[2], b""]))
    assert [Path(closing.argv[1]).name for closing in closings(tmp_path)] == ["held-first", "held-third"]


def test_a_line_cut_by_a_crash_does_not_damage_the_next(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).touch()
    put_off_end(tmp_path, ("end",), tmp_path / "first")
    with open(tmp_path / "closings", "ab") as file:
        file.write(b'{"argv": ["end", ')
    put_off_end(tmp_path, ("end",), tmp_path / "second")
    assert [Path(closing.argv[1]).name for closing in closings(tmp_path)] == ["held-first", "held-second"]


def test_a_cleanup_step_that_could_not_be_stored_is_stored_by_the_next_call(tmp_path: Path) -> None:
    (tmp_path / "order").touch()
    (tmp_path / "closings").mkdir()
    with pytest.raises(IsADirectoryError):
        put_off_end(tmp_path, ("end",), tmp_path / "order")
    (tmp_path / "closings").rmdir()
    for _ in range(2):
        put_off_end(tmp_path, ("end",), tmp_path / "order")
    assert [Path(closing.argv[1]).name for closing in closings(tmp_path)] == ["held-order"]
