"""`remuda plugin new` and `check`, as somebody types them."""

import json
import os
from pathlib import Path

import pytest

from remuda.cli.main import call
from remuda.lib.exits import BadInputError
from remuda.testing.instance_groups import a_plugin, a_program


def test_what_new_writes_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, config = tmp_path / "herd", tmp_path / "herd.toml"
    call(["plugin", "new", "herd", "--folder", str(folder)])
    config.write_text(f'[plugin_config]\nfolder = "{tmp_path}/machines"\n[connector_config]\ntimeout = "5m"\n')
    call(["plugin", "check", str(folder / "fleeting-plugin-herd"), "--config", str(config)])
    out = capsys.readouterr().out
    assert "1 instance(s) will be made and deleted; that may cost money" in out
    assert out.endswith("All checks are passed\n")
    with pytest.raises(BadInputError, match="is there already"):
        call(["plugin", "new", "herd", "--folder", str(folder)])


def test_a_name_with_its_prefix_and_one_that_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    taken = a_program(tmp_path / "bin", "#!/bin/sh\n", name="fleeting-plugin-taken")
    monkeypatch.setenv("PATH", str(taken.parent))
    call(["plugin", "new", "fleeting-plugin-own"])
    assert capsys.readouterr().out == "fleeting-plugin-own is written; its README.md says how to try it out\n"
    call(["plugin", "new", "taken"])
    assert f'plugin = "taken" means {taken} at present' in capsys.readouterr().out


def test_a_check_that_fails_ends_with_1_and_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = a_program(tmp_path / "bin", "#!/bin/sh\n", name="fleeting-plugin-table")
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    with pytest.raises(SystemExit) as caught:
        call(["plugin", "check", str(a_plugin(tmp_path, first="import sys; sys.argv[1:] and sys.exit(3)"))])
    assert caught.value.code == 1
    out = capsys.readouterr().out
    assert f'plugin = "table" means another program, {other}' in out
    assert "FAILED  tells its version\n          expected: `PROGRAM version` prints" in out
    assert "          to do: answer `version`" in out
    assert out.endswith("1 of 30 checks failed\n")


def test_programs_are_told_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = a_program(tmp_path, "#!/bin/sh\necho Welcome\n")
    with pytest.raises(SystemExit):
        call(["plugin", "check", str(program), "--output", "json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["program"], told["passed"]) == (str(program), False)
    last = told["checks"][-1]
    assert (last["name"], last["outcome"]) == ("handshake", "failed")
    assert "'Welcome'" in last["happened"]
    assert last["to_do"].startswith("listen first")
    assert len(told["checks"]) + len(told["not_tried"]) == 30
    assert told["not_tried"][0] == "no configuration"
    with pytest.raises(SystemExit):
        call(["plugin", "check", str(program)])
    out = capsys.readouterr().out
    assert out.endswith("3 checks failed; the other 27 were not tried, for they need what failed\n")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["check", "there-is-none"], "there is no plugin there-is-none"),
        (["check", "/bin/true", "--config", "FILE"], "FILE: cannot be read"),
        (["check", "/bin/true", "--config", "list.json"], "has to be a table"),
        (["check", "/bin/true", "--config", "broken.toml"], "broken.toml: "),
        (["check", "/bin/true", "--config", "login.toml"], "connector_config: there is no setting usrname"),
        (
            ["check", "/bin/true", "--config", "kind.toml"],
            "connector_config: password has to be a text",
        ),
        (["check", "/bin/true", "--config", "key.toml"], "connector_config.key_path: nowhere cannot be read"),
        (["check", "/bin/true", "--config", "span.toml"], "'soon' is not a duration; write one like 90s"),
        (["check", "/bin/true", "--config", "table.toml"], "there is no connectr_config beside plugin_config and"),
        (["check", "/bin/true", "--instances", "3"], "which may cost money; say --yes"),
        (["check", "/bin/true", "--instances", "0"], "--instances has to be 1 or more"),
        (["new", "Not a name"], "small letters, digits and -"),
        (
            ["new", "ok", "--folder", "/proc/foo"],
            "/proc/foo cannot be written: No such file or directory; give",
        ),
        (["install"], "nothing to install"),
        (["install", "AWS"], "names no plugin"),
    ],
)
def test_bad_input_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], problem: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.json").write_text("[]")
    Path("broken.toml").write_text("=")
    lines = {
        "login": 'usrname = "x"',
        "kind": "password = 7",
        "key": 'key_path = "nowhere"',
        "span": 'timeout = "soon"',
    }
    for name, line in (lines | {"table": "[connectr_config]"}).items():
        Path(f"{name}.toml").write_text(f"[plugin_config]\n[connector_config]\n{line}\n")
    with pytest.raises(BadInputError) as caught:
        call(["plugin", *words])
    assert problem in str(caught.value)


def test_a_configuration_without_plugins_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text('[[runners]]\nname = "x"\n')
    call(["plugin", "install", "--config", str(tmp_path / "config.toml")])
    assert "names no plugin" in capsys.readouterr().out
