"""What jobs of a configuration would miss on this machine."""

import os
from pathlib import Path

import pytest

from remuda.manager.config.load import parse
from remuda.manager.environments.readiness import find_missing

RUNNER = '[[runners]]\nurl = "https://gitlab.example"\ntoken = "glrt-x"\nexecutor = "{}"\n{}'


def find(executor: str, text: str) -> list[str]:
    config = parse(RUNNER.format(executor, text), file="config.toml", environment={}).config
    return list(find_missing(enumerate(config.runners)))


def test_keys_of_machines(tmp_path: Path) -> None:
    key = tmp_path / "key"
    text = f'[runners.ssh]\nhost = "m"\nidentity_file = "{key}"\n'
    assert find("ssh", text) == [
        f"runners[0].ssh.identity_file: {key}: there is no such file; correct the path, or write the file there"
    ]
    key.write_text("a key")
    assert find("ssh", text) == []
    machines = f'[[runners.remuda.machines]]\nhost = "a"\nidentity_file = "{key}"\n'
    missing = '[[runners.remuda.machines]]\nhost = "b"\nidentity_file = "/none"\n'
    [problem] = find("instance", machines + missing)
    assert problem.startswith("runners[0].remuda.machines[1].identity_file: /none: there is no such file")


def test_the_key_that_signs_artifacts(tmp_path: Path) -> None:
    text = f'[runners.remuda]\nsigning_key = "{tmp_path}"\n'
    [problem] = find("shell", text)
    assert problem.startswith(f"runners[0].remuda.signing_key: {tmp_path}: cannot be read: Is a directory; let the")


def test_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find("shell", "") == [
        "runners[0].executor: there is no git on this machine, so jobs cannot fetch their sources; install it"
    ]
    [problem] = find("plugin", '[runners.remuda.environment]\nplugin = "nothing"\n')
    assert problem.startswith("runners[0].remuda.environment.plugin: there is no plugin nothing")


def test_a_driver_of_the_custom_executor_without_its_cleanup(tmp_path: Path) -> None:
    script = tmp_path / "cleanup"
    text = f'builds_dir = "/b"\ncache_dir = "/c"\n[runners.custom]\nrun_exec = "/bin/true"\ncleanup_exec = "{script}"\n'
    where = f"runners[0].custom.cleanup_exec: {script}"
    assert find("custom", text) == [f"{where}: there is no such program; jobs run, but are not cleaned up"]
    script.write_text("#!/bin/sh\n")
    assert find("custom", text) == [f"{where}: is not executable (chmod +x); jobs run, but are not cleaned up"]
    script.chmod(0o755)
    assert find("custom", text) == []


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    [problem] = find("shell", f'builds_dir = "{tmp_path}/file/builds"\n')
    assert problem == f"runners[0].builds_dir: {tmp_path}/file is no folder; name another one; the runner takes no jobs"
    assert find("shell", f'builds_dir = "{tmp_path}/new/builds"\n') == []


def test_a_folder_without_the_right_to_write() -> None:
    # A folder in which root cannot write either.
    [problem] = find("shell", 'cache_dir = "/proc/self/cache"\n')
    assert "cannot be written to" in problem


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can use another user")
def test_a_user_that_does_not_exist() -> None:
    [problem] = [text for text in find("shell", '[runners.remuda]\nrun_as = "no-such-user"\n') if "run_as" in text]
    assert problem.startswith("runners[0].remuda.run_as: ")
