"""Files of a user in places for everybody; processes are in tests/integration/autoscaling/test_slots.py."""

import os
from pathlib import Path

import pytest

from remuda.steps.policy.own_user import is_listed, remove_files


def test_what_lies_in_a_place_goes_and_what_it_links_to_stays(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    (place / "folder" / "deep").mkdir(parents=True)
    (place / "folder" / "deep" / "file").touch()
    (place / "file").touch()
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (place / "link").symlink_to(elsewhere)
    (place / "folder" / "link").symlink_to(elsewhere)
    remove_files(os.geteuid() + 1, (str(place), str(tmp_path / "none")))
    assert len(list(place.iterdir())) == 3
    remove_files(os.geteuid(), (str(place), str(tmp_path / "none")))
    assert list(place.iterdir()) == []
    assert (elsewhere / "kept").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    (tmp_path / "own").touch()
    os.chown(tmp_path / "own", 123456, 123456)
    remove_files(123456, (str(tmp_path),))
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_users_of_the_machine() -> None:
    assert is_listed(0)
    assert not is_listed(2**31 - 7)
