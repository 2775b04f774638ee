import subprocess
from pathlib import Path

from remuda.cli.failure_shell import script_text


def test_the_script_opens_a_shell_there_with_the_variables(tmp_path: Path) -> None:
    place = tmp_path / "with space"
    place.mkdir()
    text = script_text(place, {"A": "it's $HOME\nand more", "SHELL": "/usr/bin/env"})
    done = subprocess.run(["/bin/sh", "-c", text], env={}, capture_output=True, text=True, check=True)
    assert "A=it's $HOME\nand more\n" in done.stdout
    assert f"PWD={place}\n" in done.stdout
