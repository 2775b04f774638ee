"""`remuda plugin new`, `check` and `install`: output, exit codes and error messages."""

import json
import os
from pathlib import Path

import pytest

from remuda.cli.main import call
from remuda.lib.exits import BadInputError
from remuda.testing.instance_groups import a_plugin, a_program


def test_the_plugin_of_new_passes_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, config = tmp_path / "herd", tmp_path / "herd.toml"
    call(["plugin", "new", "herd", "--folder", str(folder)])
    config.write_text(f'[plugin_config]\nfolder = "{tmp_path}/machines"\n[connector_config]\ntimeout = "5m"\n')
    call(["plugin", "check", str(folder / "fleeting-plugin-herd"), "--config", str(config)])
    out = capsys.readouterr().out
    assert "1 instance(s) will be created and deleted; that may cost money" in out
    assert out.endswith("All checks passed\n")
    with pytest.raises(BadInputError, match="exists already"):
        call(["plugin", "new", "herd", "--folder", str(folder)])


def test_new_with_a_prefixed_name_and_with_a_name_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = a_program(tmp_path / "bin", "#!/bin/sh\n", name="fleeting-plugin-taken")
    monkeypatch.setenv("PATH", str(program.parent))
    call(["plugin", "new", "fleeting-plugin-own"])
    assert capsys.readouterr().out == "fleeting-plugin-own is written; its README.md says how to try it out\n"
    call(["plugin", "new", "taken"])
    assert f'plugin = "taken" means {program} at present' in capsys.readouterr().out


def test_a_failed_check_exits_with_1_and_prints_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = a_program(tmp_path / "bin", "#!/bin/sh\n", name="fleeting-plugin-table")
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    with pytest.raises(SystemExit) as caught:
        call(["plugin", "check", str(a_plugin(tmp_path, first="import sys; sys.argv[1:] and sys.exit(3)"))])
    assert caught.value.code == 1
    out = capsys.readouterr().out
    assert f'plugin = "table" means another program, {other}' in out
    assert "FAILED  prints its version\n          expected: `PROGRAM version` prints" in out
    assert "          to do: answer `version`" in out
    assert out.endswith("1 of 30 checks failed\n")


def test_check_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = a_program(tmp_path, "#!/bin/sh\necho Welcome\n")
    with pytest.raises(SystemExit):
        call(["plugin", "check", str(program), "--output", "json"])
    report = json.loads(capsys.readouterr().out)
    assert (report["program"], report["passed"]) == (str(program), False)
    last = report["checks"][-1]
    assert (last["name"], last["outcome"]) == ("handshake", "failed")
    assert "'Welcome'" in last["happened"]
    assert last["to_do"].startswith("listen first")
    assert len(report["checks"]) + len(report["not_tried"]) == 30
    assert report["not_tried"][0] == "no configuration"
    with pytest.raises(SystemExit):
        call(["plugin", "check", str(program)])
    out = capsys.readouterr().out
    assert out.endswith("3 checks failed; the other 27 were not tried, because they depend on what failed\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
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
        (["check", "/bin/true", "--instances", "3"], "which may cost money; confirm with --yes"),
        (["check", "/bin/true", "--instances", "0"], "--instances has to be 1 or more"),
        (["new", "Not a name"], "lower-case letters, digits and -"),
        (
            ["new", "ok", "--folder", "/proc/foo"],
            "/proc/foo cannot be written: No such file or directory; give",
        ),
        (["install"], "nothing to install"),
        (["install", "AWS"], "names no plugin"),
    ],
)
def test_bad_input_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
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
        call(["plugin", *arguments])
    assert message in str(caught.value)


def test_a_configuration_without_plugins_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text('[[runners]]\nname = "x"\n')
    call(["plugin", "install", "--config", str(tmp_path / "config.toml")])
    assert "names no plugin" in capsys.readouterr().out
