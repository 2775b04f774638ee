"""The manager's system_id: derived from the machine or random, and stored."""

import re
from pathlib import Path

from remuda.manager.registration.system_id import FILE_NAME, system_id


def test_it_is_derived_from_the_machine_id_and_stays(tmp_path: Path) -> None:
    machine = tmp_path / "machine-id"
    machine.write_text("0123456789abcdef0123456789abcdef\n")
    first = system_id(tmp_path, machine_ids=(machine,))
    assert re.fullmatch(r"s_[0-9a-f]{12}", first)
    machine.write_text("another machine")
    assert system_id(tmp_path, machine_ids=(machine,)) == first


def test_it_is_random_if_the_machine_has_no_id(tmp_path: Path) -> None:
    first = system_id(tmp_path, machine_ids=())
    assert re.fullmatch(r"r_[0-9a-zA-Z]{12}", first)
    assert system_id(tmp_path, machine_ids=()) == first


def test_a_system_id_beside_the_configuration_is_used(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / FILE_NAME).write_text("r_abcdefABCDEF")
    assert system_id(tmp_path / "data", beside_config=tmp_path) == "r_abcdefABCDEF"
    assert (tmp_path / "data" / FILE_NAME).read_text() == "r_abcdefABCDEF"


def test_a_broken_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("rubbish")
    assert re.fullmatch(r"[sr]_[0-9a-zA-Z]{12}", system_id(tmp_path))
