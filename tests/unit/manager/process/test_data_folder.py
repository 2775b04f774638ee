"""The manager's data folder: its mark is unique and survives restarts."""

from pathlib import Path

from remuda.manager.process.data_folder import DataFolder
from remuda.manager.registration.system_id import keep_system_id


def open_folder(path: Path, system_id: str = "s_000000000001") -> DataFolder:
    path.mkdir(exist_ok=True)
    keep_system_id(path, system_id)
    return DataFolder(path)


def test_the_mark_of_a_manager_is_unique_and_survives_restarts(tmp_path: Path) -> None:
    marks = []
    for name, system_id in (("a", "s_000000000001"), ("b", "s_000000000001"), ("a", "s_000000000002")):
        for _ in range(2):
            with open_folder(tmp_path / name, system_id) as folder:
                marks.append(folder.mark)
    assert marks[0::2] == marks[1::2]
    assert len(set(marks)) == 3
