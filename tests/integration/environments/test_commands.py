"""`remuda environment new` and `check`: output, exit codes and error messages."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.environment_plugins import a_plugin, kill_agents

from remuda.cli.main import call
from remuda.lib.exits import BadInputError


@pytest.fixture(autouse=True)
def _no_agents_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    kill_agents(tmp_path)


def test_the_plugin_of_new_passes_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cloud"
    call(["environment", "new", "cloud", "--folder", str(folder)])
    program = folder / "remuda-environment-cloud"
    assert "remuda environment check" in capsys.readouterr().out
    call(["environment", "check", str(program), "--config", '{"machines": ["one"]}'])
    out = capsys.readouterr().out
    assert out.startswith("ok      handshake\n")
    assert out.endswith("All checks passed\n")
    with pytest.raises(BadInputError, match="exists already"):
        call(["environment", "new", "cloud", "--folder", str(folder)])


def test_a_failed_check_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = a_plugin(tmp_path / "broken", replacing={"return len(self.machines)": "return 0"})
    with pytest.raises(SystemExit) as caught:
        call(["environment", "check", str(program)])
    assert caught.value.code == 1
    assert "FAILED  capacity (version 1): the capacity is 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "there-is-none"], "no program remuda-environment-there-is-none in PATH"),
        (["check", "/bin/true", "--config", "x"], "--config: not JSON"),
        (["check", "/bin/true", "--config", "[]"], "--config: a JSON object is needed"),
        (["new", "Not a name"], "lower-case letters, digits and -"),
    ],
)
def test_bad_input_message(arguments: list[str], message: str) -> None:
    with pytest.raises(BadInputError) as caught:
        call(["environment", *arguments])
    assert message in str(caught.value)
