"""The variable CONFIG_FILE, which names the configuration for every command of a manager."""

from pathlib import Path

import pytest

from remuda.cli.main import call
from remuda.lib.exits import CommandError
from remuda.manager.errors import RegisterError

RUNNER = (
    '[[runners]]\nname = "{name}"\nurl = "http://127.0.0.1:{port}"\ntoken = "t"\nexecutor = "shell"\nkey_{port} = 1\n'
)
PORTS = {"variable": 1, "option": 2}
"""Ports of servers that do not exist, by the name of the file."""
EXPECTED = {
    "check": "warning: {file}:6: runners[0].key_{port} is unknown",
    "doctor": "   6  unknown   runners[0].key_{port}",
    "list": "http://127.0.0.1:{port}",
    "verify": "127.0.0.1:{port} refused the connection",
    "status": "no manager runs with the configuration {file}",
    "drain": "no manager runs with the configuration {file}",
    "service": "--config {file}",
}
"""A text of the output or the error of each command, with the file that it uses."""


@pytest.mark.parametrize("words", [(), ("--config", "option.toml")], ids=["variable", "option"])
@pytest.mark.parametrize("command", EXPECTED)
def test_a_command_uses_the_file_of_the_variable_unless_an_option_names_one(
    command: str,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, port in PORTS.items():
        (tmp_path / f"{name}.toml").write_text(RUNNER.format(name=name, port=port))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONFIG_FILE", str(tmp_path / "variable.toml"))
    problem = ""
    try:
        call(["manager", command, *words])
    except (CommandError, RegisterError) as error:
        problem = str(error)
    name = "option" if words else "variable"
    # `service` writes the whole path, all others the one that they were given.
    file = f"{name}.toml" if words and command != "service" else str(tmp_path / f"{name}.toml")
    output = "".join(capsys.readouterr()) + problem
    assert EXPECTED[command].format(file=file, port=PORTS[name]) in output
