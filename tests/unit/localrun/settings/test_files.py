import grp
import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from remuda.lib.exits import BadInputError
from remuda.localrun.options import PipelineOptions, RunOptions
from remuda.localrun.settings.files import load_settings
from remuda.localrun.settings.places import may_change_start, project_folder, user_file


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A repository: for settings only the entry `.git` counts."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    return tmp_path / "shop"


def write_user_file(text: str) -> None:
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text(text)


def test_the_users_file_is_in_the_folder_of_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_file().parent == Path(platformdirs.user_config_dir("remuda"))
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert user_file().parent == Path(platformdirs.user_config_dir("remuda"))


def test_without_files_options_stay_as_they_are(shop: Path) -> None:
    assert load_settings(shop).layers == ()
    assert load_settings(shop).apply(RunOptions(jobs=3)) == RunOptions(jobs=3)


def test_the_command_line_wins_over_the_repository_and_that_over_the_user(shop: Path) -> None:
    write_user_file("jobs = 1\nlogs = true\nevent = 'web'\nisolation = 'none'\n")
    (shop / ".remuda.toml").write_text("jobs = 2\nevent = 'api'\n")
    settings = load_settings(shop)
    run = settings.apply(RunOptions())
    assert (run.jobs, run.logs, run.isolation) == (2, True, "none")
    # A value counts as given even if it is the default.
    assert settings.apply(RunOptions(jobs=5, logs=False)).logs is False
    assert settings.apply(PipelineOptions(event="push")).event == "push"
    assert settings.apply(PipelineOptions()).event == "api"


def test_lists_of_variables_are_joined_the_strongest_last(shop: Path) -> None:
    write_user_file("variable = ['A=user']\njob = ['lint']\n")
    (shop / ".remuda.toml").write_text("job = ['unit']\n\n[variable]\nA = 'repository'\nB = 'b'\n")
    settings = load_settings(shop)
    assert settings.apply(PipelineOptions(variable=("A=line",))).variable == (
        *("A=user", "A=repository", "B=b", "A=line"),
    )
    # Chosen jobs are not joined: `--job test` means that job alone.
    assert settings.apply(RunOptions()).job == ("unit",)
    assert settings.apply(RunOptions(job=("test",))).job == ("test",)


def test_the_file_is_found_from_a_subfolder_and_from_a_file(shop: Path) -> None:
    (shop / "ci" / "deep").mkdir(parents=True)
    (shop / "ci" / "jobs.yml").write_text("")
    (shop / ".remuda.toml").write_text("jobs = 2\n")
    for place in (shop / "ci" / "deep", shop / "ci" / "jobs.yml"):
        assert project_folder(place) == shop
        assert load_settings(place).apply(RunOptions()).jobs == 2


def test_an_environment_variable_wins_over_files(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_user_file("templates = '/from/the/file'\n")
    assert load_settings(shop).apply(PipelineOptions()).templates == "/from/the/file"
    monkeypatch.setenv("REMUDA_TEMPLATES", "/from/the/environment")
    assert load_settings(shop).apply(PipelineOptions()).templates == "/from/the/environment"
    assert load_settings(shop).apply(PipelineOptions(templates="/given")).templates == "/given"


def test_relative_paths_are_relative_to_the_file(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    write_user_file("cache-dir = 'caches'\ndata = '~/data'\n")
    (shop / ".remuda.toml").write_text("file = 'ci/main.yml'\nvariables-file = ['a.env']\n")
    settings = load_settings(shop)
    run, pipeline = settings.apply(RunOptions()), settings.apply(PipelineOptions())
    assert (run.cache_dir, run.data) == (user_file().parent / "caches", Path("/home/someone/data"))
    assert (pipeline.file, pipeline.variables_file) == (shop / "ci" / "main.yml", (shop / "a.env",))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("jobs = 2\nisolaton = 'none'\n", r':2: there is no setting "isolaton"; did you mean "isolation"\?'),
        ("\nnonsense_key = 1\n", r':2: there is no setting "nonsense_key"; `remuda run --help` lists'),
        ("jobs = 'many'\n", ":1: jobs: 'many' does not fit; write a number"),
        ("jobs = \n", r"is not TOML: Invalid value \(at line 1"),
        ("jobs = " + "[" * 100_000, "is nested too deeply"),
        ("jobs = " + "9" * 100_000, "is not TOML: Exceeds the limit"),
        ("[run]\njobs = 1\n", r':1: there is no setting "run"'),
        (
            "isolation = 'none'\n",
            ":1: isolation: only your own settings may set this.*settings.toml, or give --iso",
        ),
        ("containers = 'never'\n", ":1: containers: only your own settings may set this"),
        ("artifacts = '../out'\n", ":1: artifacts: ../out is not in the repository"),
        ("artifacts = '.git'\n", ":1: artifacts: .git is not in the repository"),
        ("variables-file = ['/etc/passwd']\n", ":1: variables-file: /etc/passwd is not in the repository"),
        ("file = 'link/passwd'\n", ":1: file: link/passwd is not in the repository"),
        ("variables-file = ['.remuda/secrets.env']\n", ":1: variables-file: .remuda/secrets.env is not in the rep"),
        ("artifacts = '.remuda'\n", ":1: artifacts: .remuda is not in the repository"),
        ('file = "a\\u0000b"\n', ":1: file: no file can have this name"),
    ],
)
def test_mistakes_are_refused_with_file_line_and_cure(shop: Path, text: str, error: str) -> None:
    (shop / "link").symlink_to("/etc")
    (shop / ".remuda.toml").write_text(text)
    with pytest.raises(BadInputError, match=f"{shop}/.remuda.toml.*{error}"):
        load_settings(shop)


def test_a_repository_names_only_files_of_variables_that_git_tracks(make_repo: Any) -> None:
    repo = make_repo(**{"shared.env": "A=1\n", ".gitignore": ".env\n"})
    repo.put(".env", "PASSWORD=abc12345\n")
    (repo.folder / "link.env").symlink_to(".env")
    repo.git("add", "link.env")
    repo.put(".remuda.toml", "variables-file = ['shared.env']\n")
    assert load_settings(repo.folder).apply(PipelineOptions()).variables_file == (repo.folder / "shared.env",)
    for name in (".env", "link.env", "*.env"):
        repo.put(".remuda.toml", f"variables-file = ['{name}']\n")
        with pytest.raises(
            BadInputError, match=r":1: variables-file: git does not track .*; add it to git, or give --va"
        ):
            load_settings(repo.folder)


def test_a_file_that_is_no_text_file_is_refused(shop: Path) -> None:
    place = shop / ".remuda.toml"
    place.write_bytes(b"jobs = 1\nref = '\xff'\n")
    with pytest.raises(BadInputError, match=":2: is not UTF-8"):
        load_settings(shop)
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(BadInputError, match="is not a file"):
        load_settings(shop)
    place.unlink()
    place.symlink_to("/etc/passwd")
    with pytest.raises(BadInputError, match="is a symbolic link"):
        load_settings(shop)


def test_a_user_may_link_to_the_own_file(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "dotfiles.toml").write_text("jobs = 7\n")
    user_file().parent.mkdir(parents=True)
    user_file().symlink_to(tmp_path / "dotfiles.toml")
    assert load_settings(shop).apply(RunOptions()).jobs == 7


@pytest.mark.parametrize("mode", [0o666, 0o602])
def test_an_own_file_that_others_can_change_is_refused(shop: Path, mode: int) -> None:
    write_user_file("isolation = 'none'\n")
    user_file().chmod(mode)
    with pytest.raises(BadInputError, match=r"settings.toml: other users can .*; run: chmod go-w .*settings.toml$"):
        load_settings(shop)
    user_file().chmod(0o644)
    assert load_settings(shop).apply(RunOptions()).isolation == "none"


def test_only_the_users_private_group_may_write_to_the_own_file(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_user_file("jobs = 3\n")
    user_file().chmod(0o664)
    user, group = pwd.getpwuid(os.geteuid()).pw_name, user_file().stat().st_gid

    def load_with_group(name: str, *members: str) -> int | None:
        entry = grp.struct_group((name, "x", group, list(members)))
        monkeypatch.setattr(grp, "getgrgid", {group: entry}.__getitem__)
        return load_settings(shop).apply(RunOptions()).jobs

    assert load_with_group(user) == 3
    for name, *members in (("users",), (user, "somebody")):
        with pytest.raises(BadInputError, match="other users can change it"):
            load_with_group(name, *members)


def test_settings_that_a_start_depends_on_are_noticed_before_it() -> None:
    assert not may_change_start((b"data", b"isolation"))
    write_user_file("jobs = 2\n")
    assert not may_change_start((b"data", b"isolation"))
    write_user_file("isolation = 'none'\n")
    assert may_change_start((b"data", b"isolation"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("is_whole", [True, False], ids=["folder and file", "file"])
def test_the_file_of_another_user_is_refused(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    (shop / "ci").mkdir()
    place = shop / ".remuda.toml"
    place.write_text("variable = {BASH_ENV = '/tmp/evil.sh'}\n")
    for each in (place, *([shop, shop / ".git"] if is_whole else [])):
        os.chown(each, 65534, 65534)
    with pytest.raises(BadInputError, match=f"{place}: .* belongs to the user .*safe.directory {shop}`, or .*chown"):
        load_settings(shop / "ci")
    # The cures that the error names, and sudo.
    with monkeypatch.context() as sudo:
        sudo.setenv("SUDO_UID", "65534")
        assert load_settings(shop / "ci").layers
    subprocess.run(["git", "config", "--global", "--add", "safe.directory", str(shop)], check=True)
    assert load_settings(shop / "ci").layers
    subprocess.run(["git", "config", "--global", "--add", "safe.directory", ""], check=True)
    with pytest.raises(BadInputError, match="belongs to"):
        load_settings(shop / "ci")
    for each in (place, shop):
        os.chown(each, 0, 0)
    assert load_settings(shop / "ci").layers
