"""`remuda plugin install` from a real registry and from files, and `remuda plugin list`."""

import gzip
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.step_packages import (
    BASIC,
    CONFIG,
    MANIFEST,
    StepRegistry,
    a_layer,
    basic_registry,
    has_registry,
    step_registry,
)

from remuda.cli.main import call
from remuda.fleeting.errors import PermanentError
from remuda.fleeting.install import MARK, choose_image, choose_layer, this_platform
from remuda.fleeting.plugin_search import find_program
from remuda.lib.exits import BadInputError, CommandError
from remuda.testing.instance_groups import a_plugin, a_program

LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
REPOSITORY = "team/plugins/herd"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where plugins are installed."""
    monkeypatch.setenv("FLEETING_PLUGIN_PATH", str(tmp_path / "plugins"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.delenv("DOCKER_AUTH_CONFIG", raising=False)
    return tmp_path / "plugins"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StepRegistry]:
    if not has_registry():
        pytest.skip("docker-registry is not installed; `make packages` installs it")
    with step_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


def publish(
    registry: StepRegistry,
    version: str,
    *tags: str,
    name: str = REPOSITORY,
    layer: bytes | None = None,
    platform: str = "",
) -> None:
    """Push an artifact in the format of the upstream tool."""
    packed = layer if layer is not None else a_layer({"plugin/plugin": (f"#!/bin/sh\necho {version}\n", 0o755)})
    marked = registry.blob(name, gzip.compress(packed), LAYER) | {"annotations": {MARK: version}}
    other = registry.blob(name, gzip.compress(a_layer({"etc/base": "x"})), LAYER)
    config = registry.blob(name, b'{"os":"linux"}', CONFIG)
    document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [other, marked]}
    image = registry.manifest(name, "", document)
    system, machine, _ = this_platform()
    for tag in (version, *tags):
        registry.index(name, tag, **{platform or f"{system}_{machine}": image})


def installed_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_installed_version_is_found(registry: StepRegistry, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{registry.host}/{REPOSITORY}"
    publish(registry, "1.2.0", "1", "1.2", "latest")
    call(["plugin", "install", f"{name}:1"])
    output = capsys.readouterr().out
    assert "1.2.0: fetching" in output
    assert f"{name} 1.2.0 is installed: {folder / name / '1.2.0/plugin'}" in output
    assert find_program(f"{name}:1") == str(folder / name / "1.2.0/plugin")
    assert installed_files(folder) == [f"{name}/1.2.0/plugin"]

    publish(registry, "1.10.0", "1", "latest")
    sent = registry.blobs_sent()
    call(["plugin", "install", f"{name}:1"])
    assert "is already installed" in capsys.readouterr().out
    assert registry.blobs_sent() == sent
    call(["plugin", "install", "--upgrade", f"{name}:1"])
    assert find_program(name) == str(folder / name / "1.10.0/plugin")
    assert find_program(f"{name}:1.2") == str(folder / name / "1.2.0/plugin")
    call(["plugin", "install", "--upgrade", name])
    assert "1.10.0 is already installed" in capsys.readouterr().out


def test_the_plugins_of_a_configuration_are_installed(
    registry: StepRegistry, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(registry, "3.0.0", "latest", name="team/other")
    config = tmp_path / "config.toml"
    reference, program = f"{registry.host}/team/other", a_plugin(tmp_path)
    config.write_text(
        f'[[runners]]\n[runners.autoscaler]\nplugin = "{reference}"\n[[runners]]\nname = "shell"\n'
        f'[[runners]]\n[runners.autoscaler]\nplugin = "{program}"\n'
    )
    for message in ("is installed", "is already installed"):
        call(["plugin", "install", "--config", str(config)])
        output = capsys.readouterr().out
        assert f"{reference} 3.0.0 {message}" in output or f"{reference} {message}" in output
        assert f"{program} is already available" in output


def links() -> bytes:
    return a_layer({"plugin/plugin": ("x", 0o755)}, {"plugin/other": "/etc/passwd"})


def inner_links() -> bytes:
    return a_layer({"plugin/plugin": ("x", 0o755)}, {"plugin/other": "plugin"})


BAD: dict[str, tuple[bytes, str]] = {
    "leads out": (a_layer({"plugin/plugin": ("x", 0o755), "../../evil": "x"}), "leads out of it"),
    "absolute": (a_layer({"plugin/plugin": ("x", 0o755), "/evil": "x"}), "leads out of it"),
    "a link out": (links(), "leads out of it"),
    "a link": (inner_links(), "has a link"),
    "not executable": (a_layer({"plugin/plugin": "x"}), "no executable program plugin/plugin"),
    "no plugin": (a_layer({"other": "x"}), "no executable program plugin/plugin"),
    "no tar": (b"nothing of the kind", "damaged or not a tar archive"),
}


@pytest.mark.parametrize(("layer", "message"), BAD.values(), ids=BAD)
def test_refused_bad_archive_leaves_nothing(registry: StepRegistry, folder: Path, layer: bytes, message: str) -> None:
    publish(registry, "6.6.6", "latest", name="bad/one", layer=layer)
    with pytest.raises(BadInputError, match=message):
        call(["plugin", "install", f"{registry.host}/bad/one"])
    assert list(folder.iterdir()) == []


def test_missing_platforms_and_versions_are_reported(registry: StepRegistry, folder: Path) -> None:
    publish(registry, "1.0.0", name="team/arm", platform="plan9_mips")
    publish(registry, "1.0.0", "2", name="team/alias")
    for reference, message in (
        ("team/arm:1.0.0", r"nothing for this machine \(linux/.*only for: plan9/mips"),
        ("team/alias:2", "gives 1.0.0, which does not fit"),
        ("team/alias:7", "404"),
    ):
        with pytest.raises(BadInputError, match=message):
            call(["plugin", "install", f"{registry.host}/{reference}"])
    assert installed_files(folder) == []


def test_an_unreachable_registry_is_a_temporary_error(folder: Path) -> None:
    with pytest.raises(CommandError, match="try again later"):
        call(["plugin", "install", "127.0.0.1:1/team/herd"])


@pytest.mark.skipif(not has_registry(), reason="docker-registry is not installed; `make packages` installs it")
def test_credentials_come_from_the_docker_configuration(tmp_path: Path, folder: Path) -> None:
    with basic_registry(tmp_path / "registry") as registry:
        publish(registry, "1.0.0", "latest")
        name = f"{registry.host}/{REPOSITORY}"
        with pytest.raises(BadInputError, match="credentials"):
            call(["plugin", "install", name])
        (tmp_path / "docker").mkdir()
        auths = {"auths": {registry.host: {"auth": BASIC.removeprefix("Basic ")}}}
        (tmp_path / "docker/config.json").write_text(json.dumps(auths))
        call(["plugin", "install", name])
    assert find_program(name) == str(folder / name / "1.0.0/plugin")


def test_program_is_named_by_itself(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = a_plugin(tmp_path / "made")
    call(["plugin", "install", str(program)])
    assert "gitlab-org/fleeting/plugins/table 1.2.3 is installed" in capsys.readouterr().out
    assert find_program("table:1") == str(folder / "registry.gitlab.com/gitlab-org/fleeting/plugins/table/1.2.3/plugin")
    archive = tmp_path / "table.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(program, "fleeting-plugin-table")
    call(["plugin", "install", str(archive)])
    assert "1.2.3 is already installed" in capsys.readouterr().out
    assert [path.name for path in tmp_path.glob("table*")] == ["table.tar.gz"]


@pytest.mark.parametrize(("folder_name", "is_copied"), [("plugin", True), ("1.2.3", True), ("home", False)])
def test_other_files_come_only_from_own_folder(tmp_path: Path, folder: Path, folder_name: str, is_copied: bool) -> None:
    program = a_plugin(tmp_path / folder_name).rename(tmp_path / folder_name / "plugin")
    (program.parent / "private").mkdir()
    (program.parent / "private/letters").touch()
    call(["plugin", "install", str(program)])
    expected = ["plugin", *(["private/letters"] if is_copied else [])]
    place = "registry.gitlab.com/gitlab-org/fleeting/plugins/table/1.2.3"
    assert installed_files(folder) == [f"{place}/{name}" for name in expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/sh\nexit 3\n", "ended with 3 and without lines Name: and Version:"),
        ("#!/bin/sh\nprintf 'Name: x\\nVersion: dev\\n'\n", "'dev'; only versions such as 1.2.3"),
    ],
)
def test_a_file_that_is_no_plugin_is_refused(tmp_path: Path, folder: Path, text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        call(["plugin", "install", str(a_program(tmp_path, text))])
    with pytest.raises(BadInputError, match="there is no such file"):
        call(["plugin", "install", str(tmp_path / "nobody")])
    assert installed_files(folder) == []


def test_other_build_is_refused_or_replaces(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = a_plugin(tmp_path / "made")
    call(["plugin", "install", str(program)])
    place = Path(find_program("table"))
    old = place.read_text()
    program.write_text(old + "# changed\n")
    with pytest.raises(BadInputError, match=r"1.2.3 is installed with other content .*; raise the version, or use"):
        call(["plugin", "install", "--upgrade", str(program)])
    assert place.read_text() == old
    capsys.readouterr()
    for message in ("1.2.3 is installed", "1.2.3 is already installed"):
        call(["plugin", "install", "--replace", str(program)])
        assert message in capsys.readouterr().out
        assert place.read_text() == old + "# changed\n"
    assert installed_files(folder) == [str(place.relative_to(folder))]


def test_error_messages_for_unusable_files(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.zip").touch()
    (tmp_path / "cloud.tgz").touch()
    a_program(tmp_path, "#!/nowhere/python\n", name="moved")
    a_program(tmp_path, f"#!{sys.executable}\nimport there_is_none\n", name="lonely")
    for argument, message in (
        (str(tmp_path), "is a folder; give the program in it"),
        ("./c.zip", r"neither an archive \(.tar, .tar.gz, .tgz\) nor may it be executed"),
        ("cloud.tgz", r"write ./cloud.tgz for the file in this folder"),
        ("./moved", "moved cannot be started: the interpreter in its first line, /nowhere/python, does not exist"),
        ("./lonely", r"lonely version: .* \(ModuleNotFoundError: No module .*is installed with pip"),
    ):
        with pytest.raises(BadInputError, match=message) as caught:
            call(["plugin", "install", argument])
        assert ".install-" not in str(caught.value)
    assert installed_files(folder) == []


def test_installed_plugins_and_plugins_on_path_are_listed(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    program = a_plugin(tmp_path / "bin")
    a_program(tmp_path / "bin", "#!/bin/sh\nexit 1\n", name="fleeting-plugin-zz")
    call(["plugin", "install", str(program)])
    capsys.readouterr()
    call(["plugin", "list", "--output", "json"])
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    listed = [(row["name"], row["version"], row["where"]) for row in rows if row["name"] in ("table", "zz")]
    assert listed == [("table", "1.2.3", "installed"), ("table", "1.2.3", "on PATH"), ("zz", "?", "on PATH")]
    assert [row["is_used"] for row in rows if row["name"] in ("table", "zz")] == [True, False, True]
    call(["plugin", "list"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["used", "name", "version", "where", "program"]
    assert [line[:2] for line in lines if " table " in line] == ["* ", "  "]
    assert str(program) in "\n".join(lines)


def test_malformed_indexes_and_manifests_are_refused() -> None:
    for document in ({}, {"manifests": 3}, {"manifests": [3, {"platform": 7}]}):
        with pytest.raises(PermanentError, match="nothing for this machine"):
            choose_image(document, ("linux", "amd64", ""))
    arm = [
        {"platform": {"os": "linux", "architecture": "arm", "variant": name}, "digest": name} for name in ("v6", "v7")
    ]
    assert choose_image({"manifests": arm}, ("linux", "arm", "v7"))["digest"] == "v7"
    for layers, message in (
        ([], "none of its layers"),
        ([{"annotations": {MARK: "new"}, "size": 1}], "its version is 'new'"),
        ([{"annotations": {MARK: "1.0.0"}, "size": 2**40}], "bytes; more than"),
    ):
        with pytest.raises(PermanentError, match=message):
            choose_layer({"layers": layers})
