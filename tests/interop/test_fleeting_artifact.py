"""Installs plugins that upstream's `fleeting-artifact` has released, by it and by `remuda plugin install`, into one
folder. Both write the same layout and find the same programs."""

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.built_programs import require_built
from tests.support.step_packages import PASSWORD, USER, StepRegistry, basic_registry, has_registry, step_registry

from remuda.cli.main import call
from remuda.fleeting.errors import PermanentError
from remuda.fleeting.install import this_platform
from remuda.fleeting.plugin_search import find_program
from remuda.lib.exits import BadInputError
from remuda.testing.instance_groups import a_program

BUILT = Path(__file__).parents[2] / "build/interop/fleeting-artifact"
HERD = """#!{python}
import sys
from pathlib import Path
from remuda.fleeting import serve
from remuda.testing.instance_groups import TableGroup


class Herd(TableGroup):
    name = "herd"
    version = Path(__file__).with_name("version").read_text()


sys.exit(serve(Herd()))
"""
Install = Callable[[str], None]


def run_upstream(*words: str, stdin: str | None = None) -> str:
    """Output of `fleeting-artifact`. Raises CalledProcessError if it fails."""
    require_built(BUILT)
    return subprocess.run(
        [BUILT, *words], input=stdin, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def install_theirs(reference: str) -> None:
    run_upstream("install", reference)


def install_ours(reference: str) -> None:
    call(["plugin", "install", reference])


def release(reference: str, dist: Path) -> None:
    """Release a plugin for this platform and for another one. The plugin reports the version of the reference."""
    version = reference.rpartition(":")[2]
    system, machine, variant = this_platform()
    for platform in (f"{system}/{machine}{variant}", "linux/s390x"):
        program = a_program(dist / version / platform, HERD.format(python=sys.executable), name="plugin")
        program.with_name("version").write_text(version)
    digest = run_upstream("release", "-dir", str(dist / version), reference)
    assert "@sha256:" in digest


def find_by_upstream(reference: str) -> str | None:
    with suppress(subprocess.CalledProcessError):
        return run_upstream("lookpath", reference)
    return None


def find_by_remuda(reference: str) -> str | None:
    with suppress(PermanentError):
        return find_program(reference)
    return None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which both install plugins."""
    monkeypatch.setenv("FLEETING_PLUGIN_PATH", str(tmp_path / "plugins"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.delenv("DOCKER_AUTH_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugins").mkdir()
    return tmp_path / "plugins"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StepRegistry]:
    """A registry with three releases, on port 80: upstream's tool makes no folder for a host name with a port."""
    if not has_registry():
        pytest.fail("docker-registry is not installed; `make packages` installs it")
    if os.geteuid() != 0:
        pytest.skip("only root may listen on port 80")
    with step_registry(tmp_path_factory.mktemp("registry"), address=free_address()) as registry:
        dist = tmp_path_factory.mktemp("dist")
        for version in ("1.2.0", "1.10.0", "2.0.0-RC.1"):
            release(f"{registry.host}/team/herd:{version}", dist)
        yield registry


def free_address() -> str:
    """A loopback address whose port 80 is free. Upstream's tool uses no TLS if the name contains 127.0.0.1."""
    for last in random.sample(range(100, 200), 100):
        with suppress(OSError), socket.create_server((f"127.0.0.{last}", 80)):
            return f"127.0.0.{last}"
    raise AssertionError("port 80 is in use on a hundred addresses")


def test_upstreams_released_plugin(registry: StepRegistry, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{registry.host}/team/herd"
    assert run_upstream("list", name).splitlines() == ["1.2.0", "1.10.0"]
    install_ours(f"{name}:1")
    assert f"{name} 1.10.0 is installed: {folder / name / '1.10.0/plugin'}" in capsys.readouterr().out
    install_ours(f"{name}:1.2")
    capsys.readouterr()
    call(["plugin", "list", "--output", "json"])
    rows = json.loads(capsys.readouterr().out)
    assert [(row["version"], row["where"]) for row in rows if row["name"] == name] == [
        ("1.10.0", "installed"),
        ("1.2.0", "installed"),
    ]
    call(["plugin", "check", f"{name}:1", "--boot-seconds", "5"])
    out = capsys.readouterr().out
    assert out.startswith(f"{folder / name / '1.10.0/plugin'}: 1 instance(s)")
    assert out.endswith("All checks passed\n")


def test_a_pre_release_called_latest_is_installed_only_by_its_version(registry: StepRegistry, folder: Path) -> None:
    name = f"{registry.host}/team/herd"
    for constraint in ("", ":2", ":2.0"):
        with pytest.raises(BadInputError, match=r"gives 2\.0\.0-RC\.1, which does not fit; ask for the version itself"):
            install_ours(name + constraint)
    assert list(folder.glob("**/plugin")) == []
    install_theirs(name)
    assert list(folder.glob("**/plugin")) == [folder / name / "2.0.0-!r!c.1/plugin"]
    assert (find_by_remuda(name), find_by_upstream(name)) == (None, None)


def file_version(path: Path) -> tuple[int, ...]:
    """Changes if the file is written again. Without the access time, which changes when a folder is listed."""
    status = path.stat()
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns


@pytest.mark.parametrize(
    ("first", "second"), [(install_ours, install_theirs), (install_theirs, install_ours)], ids=["ours", "theirs"]
)
def test_both_have_one_layout_and_choice(registry: StepRegistry, folder: Path, first: Install, second: Install) -> None:
    name = f"{registry.host}/team/herd"
    for version in ("1.2", "2.0.0-RC.1"):
        first(f"{name}:{version}")
    before = {path: file_version(path) for path in (folder / name).rglob("*")}
    for version in ("1.2.0", "2.0.0-RC.1", "1.10"):
        second(f"{name}:{version}")
    assert {path: file_version(path) for path in before} == before, "an installed plugin was written again"
    installed = sorted(str(path.relative_to(folder / name)) for path in (folder / name).glob("*/*"))
    expected = ["1.10.0", "1.2.0", "2.0.0-!r!c.1"]
    assert installed == [f"{version}/{file}" for version in expected for file in ("plugin", "version")]
    chosen = {
        "": "1.10.0",
        ":latest": "1.10.0",
        ":1": "1.10.0",
        ":1.2": "1.2.0",
        ":1.10.0": "1.10.0",
        ":2": None,
        ":2.0.0": None,
        ":2.0.0-RC.1": "2.0.0-!r!c.1",
        ":2.0.0-RC.2": None,
        ":3": None,
    }
    programs = {
        constraint: f"{folder / name / version / 'plugin'}" if version else None
        for constraint, version in chosen.items()
    }
    assert {constraint: find_by_remuda(name + constraint) for constraint in chosen} == programs
    assert {constraint: find_by_upstream(name + constraint) for constraint in chosen} == programs


def test_both_resolve_names_to_the_same_program(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = a_program(tmp_path / "1.2.3", HERD.format(python=sys.executable), name="plugin")
    program.with_name("version").write_text("1.2.3")
    install_ours(str(program))
    on_path = a_program(tmp_path / "bin", "", name="fleeting-plugin-other")
    monkeypatch.setenv("PATH", f"{on_path.parent}:{os.environ['PATH']}")
    installed = str(folder / "registry.gitlab.com/gitlab-org/fleeting/plugins/herd/1.2.3/plugin")
    for reference, expected in (
        ("herd", installed),
        ("gitlab-org/fleeting/plugins/herd:1", installed),
        ("registry.gitlab.com/gitlab-org/fleeting/plugins/herd:1.2", installed),
        ("fleeting-plugin-other", str(on_path)),
        (str(program), str(program)),
        ("team/herd", None),
        ("herd:v1", None),
        ("Herd", None),
    ):
        assert (find_by_remuda(reference), find_by_upstream(reference)) == (expected, expected), reference


def test_a_login_of_upstreams_tool_is_used_by_ours(tmp_path: Path, folder: Path) -> None:
    if not has_registry():
        pytest.fail("docker-registry is not installed; `make packages` installs it")
    with basic_registry(tmp_path / "registry") as registry:
        reference = f"{registry.host}/team/herd:1.0.0"
        with pytest.raises(subprocess.CalledProcessError):
            release(reference, tmp_path / "dist")
        run_upstream("login", "-username", USER, "-password-stdin", registry.host, stdin=PASSWORD)
        release(reference, tmp_path / "dist")
        install_ours(reference)
    assert find_by_remuda(reference) == str(folder / registry.host / "team/herd/1.0.0/plugin")
    assert find_by_upstream(reference) is None, "it does not accept a port in the name of a registry"
