from pathlib import Path

import pytest

from remuda.fleeting import TemporaryError
from remuda_plugin_docker_machine.config import Config
from remuda_plugin_docker_machine.program import Ran, create_words, environment, host_of, read_login


def test_options_become_arguments() -> None:
    config = Config(
        machine_driver="google",
        machine_options=("google-zone=a", "--google-preemptible"),
        machine_options_with_name=("google-tags=ci,%s",),
    )
    arguments = ["--google-zone=a", "--google-preemptible", "--google-tags=ci,m1", "m1"]
    assert create_words(config, "m1") == ["create", "--driver", "google", *arguments]


def test_crash_reports_are_off() -> None:
    env = environment(Path("/store"))
    assert (env["MACHINE_STORAGE_PATH"], env["MACHINE_BUGSNAG_API_TOKEN"]) == ("/store", "no-report")


@pytest.mark.parametrize(
    ("address", "expected"), [("", ""), ("10.0.0.1", "10.0.0.1"), ("10.0.0.1:2376", "10.0.0.1"), ("fe80::1", "fe80::1")]
)
def test_host_of_an_address(address: str, expected: str) -> None:
    assert host_of(address) == expected


def test_a_login_is_read_with_docker_machines_defaults(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"Driver": {"IPAddress": "10.0.0.1"}, "More": 1}')
    login = read_login(tmp_path)
    assert (login.address, login.port, login.username, login.key_path) == ("10.0.0.1", 22, "", tmp_path / "id_rsa")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"Driver": {"SSHPort": "x"}}'])
def test_a_broken_file_is_a_temporary_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(TemporaryError, match=r"config\.json cannot be read"):
        read_login(tmp_path)


def test_the_cause_of_a_failure_is_one_line() -> None:
    assert Ran(code=1, output="a\n\nb\nc\nd\n").cause == "exit code 1: b / c / d"
    assert Ran(code=124, output="").cause == "it took too long: no output"
