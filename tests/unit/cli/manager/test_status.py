import os
import socket
from pathlib import Path

import pytest

from remuda.cli.manager.status import find_manager_folder, show
from remuda.lib.exits import BadInputError
from remuda.manager.process.control import NAME
from remuda.manager.process.known_managers import remember_manager, usual_folder
from remuda.manager.process.status import FleetStatus, ManagerStatus, RunnerStatus


def bind_socket(folder: Path) -> socket.socket:
    """Bind the control socket of a manager. Closing it leaves the file behind, as a killed manager does."""
    folder.mkdir(parents=True, exist_ok=True)
    control = socket.socket(socket.AF_UNIX)
    # Bind by a descriptor of the folder: a socket address has at most 108 bytes, and test folders have long names.
    descriptor = os.open(folder, os.O_PATH)
    control.bind(f"/proc/self/fd/{descriptor}/{NAME}")
    os.close(descriptor)
    return control


def test_of_several_folders_that_of_a_running_manager_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folders = [tmp_path / "remuda" / "managers" / name for name in ("one", "two", "three")]
    for folder in folders[:2]:
        bind_socket(folder).close()
    with pytest.raises(BadInputError, match="none of your managers runs"):
        find_manager_folder(None, None)
    with bind_socket(folders[2]) as living:
        living.listen()
        assert find_manager_folder(None, None) == folders[2]


def test_managers_are_named_by_their_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    managers = tmp_path / "remuda" / "managers"
    configs = [tmp_path / name for name in ("one.toml", "two.toml")]
    remember_manager(managers, configs[0], tmp_path / "elsewhere")
    remember_manager(managers, configs[1], usual_folder(managers, configs[1]))
    with pytest.raises(BadInputError, match=f"no manager runs with the configuration {configs[0]}"):
        find_manager_folder(configs[0], None)
    with bind_socket(tmp_path / "elsewhere") as first, bind_socket(usual_folder(managers, configs[1])) as second:
        first.listen()
        second.listen()
        assert find_manager_folder(configs[0], None) == tmp_path / "elsewhere"
        with pytest.raises(BadInputError) as caught:
            find_manager_folder(None, None)
    assert str(caught.value).startswith("2 managers run here; choose one with --config ")
    assert all(f"--config {config}" in str(caught.value) for config in configs)


@pytest.mark.parametrize(("free", "word"), [(1 << 20, "no disk"), (None, "blocked"), (1 << 30, "blocked")])
def test_reason_of_a_blocked_runner_is_shown(free: int | None, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    runner = RunnerStatus(
        runner="abcdefghi",
        name="builder",
        url="http://cell",
        executor="plugin",
        jobs=0,
        limit=0,
        capacity=None,
        health="well",
        problem="the plugin does not run",
        last_status=None,
        asked_at="",
        answered_at="",
        next_at="",
        open_requests=0,
        used_limit=1,
        adaptive_limit=1,
        hard_limit=1,
        disk_free_bytes=free,
        disk_least_bytes=1 << 26,
        is_blocked=True,
    )
    show(ManagerStatus(runners=(runner,)))
    output = capsys.readouterr().out
    assert f"  {word}  " in output
    assert "builder: the plugin does not run" in output


@pytest.mark.parametrize(
    ("instances", "most", "words"),
    [
        ({}, 0, "none"),
        ({}, 2, "none of at most 2"),
        ({"ready": 1, "creating": 2}, 4, "2 creating, 1 ready of at most 4"),
        ({"ready": 1}, 0, "1 ready"),
    ],
)
def test_machine_counts(instances: dict[str, int], most: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = FleetStatus(
        runner="abcdefghi", name="builder", instances=instances, requested=0, max_instances=most, held=0, waiting=0
    )
    show(ManagerStatus(fleets=(fleet,)))
    assert f"builder  {words}  " in capsys.readouterr().out
