"""`remuda login` and `remuda logout`, and how commands find their cell."""

import json
import os
import pty
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.cell_process import CellProcess
from tests.support.cells.served_cell import ADMIN_TOKEN

NO_VARIABLES = {"REMUDA_URL": None, "REMUDA_TOKEN": None}


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    return tmp_path / "xdg_config_home" / "remuda" / "profiles.json"


def test_a_profile_is_stored_privately_and_used(remuda: Any, cell: CellProcess, profiles: Path) -> None:
    nothing = remuda("job", "list", **NO_VARIABLES)
    assert (nothing.code, "remuda login URL" in nothing.err) == (2, True)
    result = remuda("login", cell.url, "--profile", "work", stdin=f"{ADMIN_TOKEN}\n", **NO_VARIABLES)
    assert result.out.startswith(f"signed in to {cell.url} as root, profile work")
    assert ADMIN_TOKEN not in result.out + result.err
    assert stat.S_IMODE(profiles.stat().st_mode) == 0o600
    assert stat.S_IMODE(profiles.parent.stat().st_mode) == 0o700
    assert remuda("job", "list", **NO_VARIABLES).code == 0
    assert remuda("job", "list", "--profile", "work", **NO_VARIABLES).code == 0
    assert remuda("job", "list", "--url", cell.url, **NO_VARIABLES).code == 0
    listed = json.loads(remuda("login", "--list", "-o", "json", **NO_VARIABLES).out)
    assert listed == [{"name": "work", "url": cell.url, "username": "root", "is_current": True}]
    assert ADMIN_TOKEN not in remuda("login", "--list").out
    unknown = remuda("job", "list", "--profile", "wrok", **NO_VARIABLES)
    assert unknown.err.startswith("there is no profile wrok (known: work)")
    assert remuda("logout", **NO_VARIABLES).out == "the profile work is removed\n"
    assert ADMIN_TOKEN not in profiles.read_text()
    assert remuda("job", "list", **NO_VARIABLES).code == 2


def test_a_token_that_the_cell_does_not_accept_is_not_stored(remuda: Any, cell: CellProcess, profiles: Path) -> None:
    result = remuda("login", cell.url, stdin="glpat-wrong\n")
    assert (result.code, "does not accept this token" in result.err) == (2, True)
    assert not profiles.exists()
    empty = remuda("login", cell.url, stdin="\n")
    assert (empty.code, "no token was given" in empty.err) == (2, True)
    two = remuda("login", cell.url, stdin="two words\n")
    assert (two.code, "two words" in two.err) == (2, False)


def test_precedence(remuda: Any, cell: CellProcess) -> None:
    """A profile of an unused address stands for each place that must not win."""
    assert remuda("login", cell.url, "--profile", "good", stdin=ADMIN_TOKEN).code == 0
    away = {"REMUDA_URL": "http://127.0.0.1:9", "REMUDA_TOKEN": "glpat-away"}
    assert remuda("job", "list", **away).code == 1
    assert remuda("job", "list", "--profile", "good", **away).code == 0
    assert remuda("job", "list", REMUDA_PROFILE="good", **NO_VARIABLES).code == 0
    assert remuda("job", "list", "--profile", "good", "--url", cell.url).code == 2
    # A profile's token goes to no other address.
    other = remuda("job", "list", "--url", "http://127.0.0.1:9", REMUDA_TOKEN=None)
    assert other.err.startswith("no token for the cell at http://127.0.0.1:9; sign in with `remuda login")


def test_a_file_that_others_can_read_is_refused(remuda: Any, cell: CellProcess, profiles: Path) -> None:
    assert remuda("login", cell.url, stdin=ADMIN_TOKEN).code == 0
    profiles.chmod(0o640)
    result = remuda("job", "list", **NO_VARIABLES)
    assert (result.code, f"chmod 600 {profiles}" in result.err) == (2, True)
    profiles.write_text("{")
    profiles.chmod(0o600)
    damaged = remuda("job", "list", **NO_VARIABLES)
    assert (damaged.code, "remuda login" in damaged.err) == (2, True)


def test_use_switches_the_current_profile(remuda: Any, cell: CellProcess) -> None:
    for name in ("one", "two"):
        assert remuda("login", cell.url, "--profile", name, stdin=ADMIN_TOKEN).code == 0
    assert "*  two" in remuda("login", "-l").out
    assert remuda("login", "--use", "one").out == "one is the current profile now\n"
    assert "*  one" in remuda("login", "-l").out
    assert remuda("login", "--use", "three").code == 2


def test_a_token_typed_on_a_terminal_is_not_shown(world: Any, cell: CellProcess) -> None:
    ours, theirs = pty.openpty()
    process = world.start_on(theirs, "login", cell.url, XDG_CONFIG_HOME=str(world.folder / "config"))
    os.close(theirs)
    shown = b""
    while b"Token for" not in shown:
        shown += os.read(ours, 1000)
    os.write(ours, ADMIN_TOKEN.encode() + b"\n")
    try:
        while data := os.read(ours, 1000):
            shown += data
    except OSError:  # the terminal was closed at the end
        pass
    assert process.wait(30) == 0
    assert b"signed in" in shown
    assert ADMIN_TOKEN.encode() not in shown
    assert ADMIN_TOKEN in (world.folder / "config" / "remuda" / "profiles.json").read_text()
