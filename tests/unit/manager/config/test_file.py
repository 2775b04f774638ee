"""Adding a runner to a configuration file without changing the rest of the file."""

from pathlib import Path

import pytest

from remuda.manager.config.file import ConfigFile

ENTRY = {"name": "new", "url": "https://gitlab.example.com/", "token": "glrt-new", "executor": "shell"}
OLD = '[[runners]]\nname = "old"\n[runners.docker]\nimage = "alpine"'


@pytest.mark.parametrize("before", ["concurrent = 2", "concurrent = 2\n", OLD, f"{OLD}\n", f"{OLD}\n\n", "# only this"])
def test_a_blank_line_precedes_a_new_section(tmp_path: Path, before: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(before)
    for name in ("one", "two"):
        with ConfigFile.edit(path) as file:
            file.add(ENTRY | {"name": name})
    text = path.read_text()
    head, first, second = text.replace(OLD, "OLD").split("\n\n[[runners]]\n")
    assert (head.rstrip("\n"), first.splitlines()[0], second.splitlines()[0]) == (
        before.replace(OLD, "OLD").rstrip("\n"),
        'name = "one"',
        'name = "two"',
    )
    assert "\n\n\n" not in text


def test_the_first_section_of_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    with ConfigFile.edit(path, may_be_new=True) as file:
        file.add(ENTRY)
    assert path.read_text().startswith("concurrent = 1\ncheck_interval = 0\n\n[[runners]]\n")
