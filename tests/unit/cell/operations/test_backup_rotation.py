from pathlib import Path

from remuda.cell.operations.backup_rotation import next_backup, remove_old_backups


def test_only_the_oldest_backups_of_the_rotation_are_removed(tmp_path: Path) -> None:
    backups = [next_backup(tmp_path, day * 86400.0) for day in range(5)]
    assert backups[0].name == "cell-19700101T000000Z.tar.gz"
    others = [tmp_path / name for name in ("monday.tar.gz", "cell-19700101T000000Z.tar.gz.part", "cell")]
    for path in (*backups, *others):
        path.touch()
    assert remove_old_backups(tmp_path, 2, newest=backups[-1]) == backups[:3]
    assert sorted(tmp_path.iterdir()) == sorted([*backups[3:], *others])
    assert remove_old_backups(tmp_path, 9, newest=backups[-1]) == []


def test_backups_from_a_clock_that_was_ahead_go_first(tmp_path: Path) -> None:
    ahead = [next_backup(tmp_path, (1000 + day) * 86400.0) for day in range(2)]
    backups = [next_backup(tmp_path, day * 86400.0) for day in range(2)]
    for path in (*ahead, *backups):
        path.touch()
    assert remove_old_backups(tmp_path, 3, newest=backups[-1]) == ahead[:1]
    assert remove_old_backups(tmp_path, 1, newest=backups[-1]) == [ahead[1], backups[0]]
    assert list(tmp_path.iterdir()) == [backups[-1]]


def test_a_second_backup_in_one_second_has_another_name(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        path = next_backup(tmp_path, 1_700_000_059.5)
        path.touch()
        names.append(path.name)
    assert names == sorted(set(names))
    assert names[0] == "cell-20231114T221419Z.tar.gz"
    assert remove_old_backups(tmp_path, 2, newest=path) == [tmp_path / names[0]]
