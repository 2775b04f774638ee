"""`remuda.lib.hidden_mark`."""

from pathlib import Path

from remuda.lib.hidden_mark import HIDDEN_MARK, is_hidden


def test_paths_in_a_marked_folder_are_hidden(tmp_path: Path) -> None:
    (tmp_path / "hidden" / HIDDEN_MARK).mkdir(parents=True)
    assert is_hidden(f"{tmp_path}/hidden/a")
    assert is_hidden(f"{tmp_path}/hidden/a/b/c")
    assert not is_hidden(f"{tmp_path}/hidden")
    assert not is_hidden(f"{tmp_path}/other/a")
    assert not is_hidden("/")
