"""Output and exit codes of `remuda manager check`, `doctor`, `schema` and `service`."""

import json
from pathlib import Path

import pytest

from remuda.cli.main import call
from remuda.lib.exits import BadInputError
from remuda.steps.policy import hidden_folders
from remuda.testing.instance_groups import a_program

FOLDER = Path(__file__).parents[3] / "data" / "gitlab-runner"


def run_manager_command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = call(["manager", *words])
    return code, capsys.readouterr().out


def test_a_file_that_can_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(FOLDER / "shell-single.toml")
    code, out = run_manager_command(capsys, "check", "--config", file)
    assert (code, out.splitlines()[-1]) == (0, f"{file}: can be used")
    assert f"warning: {file}:5: session_server is not supported" in out


def test_a_file_that_others_can_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.toml"
    file.write_text((FOLDER / "ssh.toml").read_text())
    for mode, is_warned in ((0o644, True), (0o600, False)):
        file.chmod(mode)
        code, out = run_manager_command(capsys, "check", "--config", str(file))
        assert (code, "chmod 600" in out) == (0, is_warned)


def test_problems_have_line_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run_manager_command(capsys, "check", "--config", str(FOLDER / "sixty-keys.toml"), "--output", "json")
    report = json.loads(out)
    assert (code, report["usable"]) == (1, False)
    assert {problem["line"] for problem in report["problems"]} >= {110, 121}
    assert any("did you mean builds_dir?" in warning["message"] for warning in report["warnings"])


def test_the_doctor_prints_a_line_for_each_key(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run_manager_command(capsys, "doctor", "--config", str(FOLDER / "docker-basic.toml"))
    assert code == 0
    assert "works     runners[0].docker.image" in out
    assert "ignored   runners[0].docker.disable_cache: there are no cache volumes" in out
    assert out.splitlines()[-1].startswith("Remuda can use this file")
    code, out = run_manager_command(capsys, "doctor", "--config", str(FOLDER / "kubernetes.toml"), "--output", "json")
    report = json.loads(out)
    assert (code, len(report["problems"])) == (1, 1)
    verdicts = {diagnosis["key"]: diagnosis["verdict"] for diagnosis in report["diagnoses"]}
    assert verdicts["runners[0].executor"] == "refused"


def test_the_doctor_shows_first_what_needs_an_action(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run_manager_command(capsys, "doctor", "--config", str(FOLDER / "sixty-keys.toml"))
    lines = out.splitlines()
    verdicts = [line[6:14].strip() for line in lines if line[:4].strip(" -").isdigit() and line[4:6] == "  "]
    order = ["refused", "unknown", "ignored", "differs", "works"]
    assert code == 1
    assert verdicts == sorted(verdicts, key=order.index)
    assert lines[0].startswith("problem: ")
    assert lines[lines.index("Change or remove these keys:") + 1].split()[1] == "refused"


def test_the_doctor_says_from_what_a_key_differs(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(FOLDER / "sixty-keys.toml")
    out = run_manager_command(capsys, "doctor", "--config", file, "--only", "ignored,differs")[1]
    shown = [line for line in out.splitlines() if "  differs   " in line]
    assert len(shown) > 5
    assert all("In gitlab-runner: " in line for line in shown)
    assert "  ignored   " in out
    assert "  works  " not in out
    assert "advice:" not in out
    report = json.loads(
        run_manager_command(capsys, "doctor", "--config", file, "--only", "unknown", "--output", "json")[1]
    )
    assert {diagnosis["verdict"] for diagnosis in report["diagnoses"]} == {"unknown"}
    with pytest.raises(BadInputError, match="--only wrong: is no verdict; choose from refused,unknown,ignored,differs"):
        call(["manager", "doctor", "--config", file, "--only", "wrong"])


def test_the_doctor_groups_equal_lines_of_several_runners(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.toml"
    keys = '[[runners]]\nurl = "https://x.y"\ntoken = "{}"\nexecutor = "shell"\nbuilds_dir = "b"\nlimt = 1\n'
    file.write_text("".join(keys.format(number) for number in range(3)))
    out = run_manager_command(capsys, "doctor", "--config", str(file))[1]
    [differs] = [line for line in out.splitlines() if "  differs " in line]
    assert differs.startswith("   5  differs   runners[0].builds_dir (also in lines 11, 17): folder of the working")
    assert "   6  unknown   runners[0].limt (also in lines 12, 18): is unknown and ignored; did you mean limit?" in out
    assert "   4  works     runners[0].executor (also in lines 10, 16)\n" in out
    assert "15 keys: 0 refused, 3 unknown, 0 ignored, 3 differs, 9 works" in out
    report = json.loads(run_manager_command(capsys, "doctor", "--config", str(file), "--output", "json")[1])
    assert len([each for each in report["diagnoses"] if each["key"].endswith(".builds_dir")]) == 3


def test_what_jobs_would_miss_on_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.toml"
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    file.write_text(
        RUNNER.format("docker", f'[runners.docker]\nhost = "unix://{tmp_path}/none.sock"', "")
        + RUNNER.replace("glrt-x", "glrt-y").format(
            "custom",
            f'builds_dir = "/b"\ncache_dir = "/c"\n[runners.custom]\nrun_exec = "{script}"\nprepare_exec = "/none/p"',
            "",
        )
    )
    file.chmod(0o600)
    code, out = run_manager_command(capsys, "check", "--config", str(file))
    assert code == 0
    engine = f"{file}:6: runners[0].docker.host: the container engine at unix://{tmp_path}/none.sock cannot be used"
    assert f"warning: {engine}" in out
    assert f"{file}:17: runners[1].custom.prepare_exec: /none/p: there is no such program" in out
    assert f"{file}:16: runners[1].custom.run_exec: {script}: is not executable (chmod +x)" in out
    assert out.splitlines()[-1].endswith("but on this machine jobs would miss what the last warnings say")
    out = run_manager_command(capsys, "doctor", "--config", str(file))[1]
    assert out.startswith(f"missing: {engine}")
    report = json.loads(run_manager_command(capsys, "check", "--config", str(file), "--output", "json")[1])
    assert (report["usable"], report["ready"]) == (True, False)


def test_a_wrong_key_of_a_runner_hides_nothing_about_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        RUNNER.format("shell", 'shell = "fish"', "")
        + RUNNER.replace("glrt-x", "glrt-y").format("shell", 'tls-ca-file = "/none/ca.pem"', "")
        + RUNNER.replace("glrt-x", "glrt-z").format("docker", '[runners.docker]\nhost = "unix:///none.sock"', "")
    )
    file.chmod(0o600)
    code, out = run_manager_command(capsys, "check", "--config", str(file))
    assert code == 1
    assert f"problem: {file}:5: runners[0].shell: " in out
    assert "runners[1].tls-ca-file: /none/ca.pem: no such file" in out
    assert "runners[2].docker.host: the container engine at unix:///none.sock cannot be used" in out
    code, out = run_manager_command(capsys, "doctor", "--config", str(file))
    assert code == 1
    assert "missing: " in out


def test_plugin_settings_are_checked_with_the_schema_of_the_plugin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = '{"properties": {"zone": {"type": "string"}}, "additionalProperties": false}'
    a_program(tmp_path, f"#!/bin/sh\necho '{schema}'\n", name="fleeting-plugin-here")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    file = tmp_path / "config.toml"
    runner = '[[runners]]\nname = "{0}"\nurl = "https://x.y"\ntoken = "glrt-{0}"\nexecutor = "instance"\n'
    section = '[runners.autoscaler]\nplugin = "{0}"\nplugin_config = {{zoen = "x"}}\n'
    file.write_text("".join((runner + section).format(name) for name in ("here", "gone")))
    file.chmod(0o600)
    code, out = run_manager_command(capsys, "check", "--config", str(file))
    assert code == 0
    assert f"warning: {file}:8: runners[0].autoscaler.plugin_config.zoen: there is no such setting" in out
    assert f"warning: {file}:15: runners[1].autoscaler.plugin: on this host there is no plugin gone. Looked" in out
    code, out = run_manager_command(capsys, "doctor", "--config", str(file))
    assert "   8  refused   runners[0].autoscaler.plugin_config.zoen: the plugin here refuses it: there is no" in out
    assert out.splitlines()[-1] == (
        "Remuda can use this file, but a plugin that refuses a setting provides no machines"
    )


def test_the_schema_and_the_service_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(run_manager_command(capsys, "schema")[1])["properties"]["concurrent"]["type"] == "integer"
    unit = run_manager_command(capsys, "service", "--config", "/etc/my.toml", "--user", "ci")[1]
    assert "--config /etc/my.toml" in unit
    assert "KillMode=process" in unit
    assert "AbandonProcessGroup" in run_manager_command(capsys, "service", "--system", "launchd")[1]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for command in ("check", "doctor"):
        with pytest.raises(BadInputError, match="there is no such file"):
            call(["manager", command, "--config", str(tmp_path / "none.toml")])


RUNNER = (
    '[[runners]]\nurl = "https://gitlab.example.com"\ntoken = "glrt-x"\nexecutor = "{}"\n{}\n[runners.remuda]\n{}\n'
)


@pytest.mark.parametrize(
    ("executor", "own", "is_warned"),
    [
        ("shell", "first_uid = 20000", True),
        ("shell", "first_uid = 20000\nsandbox = true", True),
        ("shell", 'run_as = "builder"', True),
        ("docker", "first_uid = 20000", True),
        ("shell", "sandbox = true", False),
        ("shell", "", False),
        ("ssh", "first_uid = 20000", False),
    ],
)
def test_a_warning_about_code_that_the_users_of_jobs_cannot_read(
    public_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    executor: str,
    own: str,
    is_warned: bool,
) -> None:
    file, code = public_folder / "config.toml", public_folder / "closed/venv"
    more = {
        "docker": '[runners.docker]\nimage = "alpine"',
        "ssh": '[runners.ssh]\nuser = "u"\nhost = "h"\npassword = "p"',
    }
    file.write_text(RUNNER.format(executor, more.get(executor, ""), own))
    file.chmod(0o600)
    code.mkdir(parents=True)
    monkeypatch.setattr(hidden_folders, "own_places", lambda: (str(code),))
    for folder in (code, code.parent):
        folder.chmod(0o700)
        result, out = run_manager_command(capsys, "check", "--config", str(file))
        folder.chmod(0o755)
        assert result == 0, out
        assert (f"{folder} is closed to others" in out) == is_warned, out
        assert ("install Remuda and its Python where every user can read them" in out) == is_warned
    # Python itself can be in a closed folder, for example below /root: only these two are open now.
    out = run_manager_command(capsys, "check", "--config", str(file))[1]
    assert f"{code.parent} is closed to others" not in out
    assert f"{code} is closed to others" not in out
