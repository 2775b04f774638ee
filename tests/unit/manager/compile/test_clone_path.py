"""GIT_CLONE_PATH: the folder for a job's sources that the job chooses."""

from typing import Any

import msgspec
import pytest
from tests.support.manager_values import a_payload, a_row

from remuda.manager.compile.clone_path import clone_path
from remuda.manager.compile.step_entries import CompileError
from remuda.manager.config.values import CustomBuildDirConfig, RemudaConfig, RunnerConfig
from remuda.manager.environments.port import JobPlace
from remuda.manager.jobs.placement import place_of
from remuda.wire.runner_api import JobPayload


def payload_with_clone_path(path: str, project: str = "group/project", protected: bool | None = None) -> JobPayload:
    repo = {"repo_url": f"https://cell.example/{project}.git", "sha": "0" * 40, "ref": "main"}
    variables = [{"key": "CI_PROJECT_NAME", "value": "project"}, {"key": "GIT_CLONE_PATH", "value": path}]
    return a_payload(git_info=repo | {"protected": protected}, variables=variables)


def a_runner(enabled: bool | None = True, **values: Any) -> RunnerConfig:
    values = {"token": "glrt-t1_abcdefghijk", "executor": "shell"} | values
    return RunnerConfig(custom_build_dir=CustomBuildDirConfig(enabled=enabled), **values)


def resolve_clone_path(path: str, enabled: bool | None = True, **runner: Any) -> str:
    return clone_path(payload_with_clone_path(path), a_runner(enabled, **runner), slot=3)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$CI_BUILDS_DIR/go/src/$CI_PROJECT_NAME", "go/src/project"),
        ("${CI_BUILDS_DIR}/$CI_CONCURRENT_ID/./x/", "3/x"),
        ("$CI_BUILDS_DIR/a/../b c", "b c"),
        ("/srv/builds/x", "x"),
        ("", ""),
    ],
)
def test_the_folder_is_relative_to_the_builds_folder(path: str, expected: str) -> None:
    assert resolve_clone_path(path, builds_dir="/srv/builds/") == expected


@pytest.mark.parametrize(
    "path",
    [
        *("$CI_BUILDS_DIR", "$CI_BUILDS_DIR/..", "$CI_BUILDS_DIR/../x", "$CI_BUILDS_DIR/a/../../x", "/etc", "x", "~/x"),
        *("$CI_PROJECT_DIR/x", "$CI_BUILDS_DIR.x/y", "$CI_BUILDS_DIR/a\nb", "$CI_BUILDS_DIR/$$x", "$CI_BUILDS_DIR/a'b"),
    ],
)
def test_folders_outside_the_builds_folder_are_refused(path: str) -> None:
    with pytest.raises(CompileError, match=r"GIT_CLONE_PATH: .* is not a folder in \$CI_BUILDS_DIR; write it as"):
        resolve_clone_path(path)


def test_the_runner_has_to_allow_it() -> None:
    for enabled in (None, False):
        with pytest.raises(CompileError, match=r"set enabled = true in \[runners.custom_build_dir\]"):
            resolve_clone_path("$CI_BUILDS_DIR/x", enabled)
    with pytest.raises(CompileError, match="does not let jobs choose"):
        resolve_clone_path("$CI_BUILDS_DIR/x", enabled=False, executor="docker")
    assert resolve_clone_path("$CI_BUILDS_DIR/x", enabled=None, executor="docker") == "x"
    assert resolve_clone_path("$CI_BUILDS_DIR/x", enabled=None, executor="docker-autoscaler") == "x"


def test_the_environment_of_a_runner_may_set_the_path() -> None:
    payload = msgspec.structs.replace(payload_with_clone_path(""), variables=[])
    assert clone_path(payload, a_runner(environment=("GIT_CLONE_PATH=$CI_BUILDS_DIR/x",)), slot=0) == "x"


def place(path: str, runner: RunnerConfig, *, has_own_folder: bool = False, **payload: Any) -> JobPlace:
    row = a_row("5-abc", job_id=5, manager="1a2b")
    return place_of(row, payload_with_clone_path(path, **payload), runner, has_own_folder=has_own_folder)


def test_a_place_has_the_chosen_folder() -> None:
    job_place = place("$CI_BUILDS_DIR/x/y", a_runner())
    assert (job_place.folder, job_place.temporary_folder) == ("x/y", "x/y.tmp")
    assert place("", a_runner()).folder == "abcdefghi/3-1a2b/group/project"
    assert place("/etc", a_runner()).folder == "abcdefghi/3-1a2b/group/project"


def test_jobs_that_are_isolated_from_each_other_share_no_folder() -> None:
    container = a_runner(executor="docker")
    folders = [place(f"$CI_BUILDS_DIR/{path}", container).folder for path in ("a", "a/b", "a/b")]
    assert folders[1] == folders[2]
    assert folders[1].endswith("/a/b")
    roots = {folder.removesuffix("/a").removesuffix("/a/b") for folder in folders}
    assert len(roots) == 2
    assert all(root.startswith("abcdefghi/3-1a2b/@") for root in roots)
    for remuda_config in (RemudaConfig(run_as="4000"), RemudaConfig(sandbox=True)):
        assert "/@" in place("$CI_BUILDS_DIR/a", a_runner(remuda=remuda_config)).folder


def test_the_chosen_folder_is_within_the_jobs_own_folder() -> None:
    job_place = place("$CI_BUILDS_DIR/a", a_runner(), has_own_folder=True)
    assert job_place.folder.startswith("abcdefghi/job-5/@")
    assert job_place.temporary_folder == "abcdefghi/job-5"


def test_jobs_of_protected_refs_have_folders_of_their_own() -> None:
    places = {value: place("", a_runner(), protected=value) for value in (True, False, None)}
    assert places[True].folder == "abcdefghi/3-1a2b-protected/group/project"
    assert places[False].folder == places[None].folder == "abcdefghi/3-1a2b/group/project"
    chosen = place("$CI_BUILDS_DIR/a", a_runner(executor="docker"), protected=True)
    assert chosen.folder.startswith("abcdefghi/3-1a2b-protected/@")
    assert place("", a_runner(), has_own_folder=True, protected=True).temporary_folder == "abcdefghi/job-5"


def test_no_project_works_in_the_temporary_folder_of_another() -> None:
    temporary = place("", a_runner(), project="g/app").temporary_folder
    assert temporary == "abcdefghi/3-1a2b/g/app.tmp"
    for project in ("g/app.tmp", "g/app.tmp/sub", "g/app.TMP"):
        job_place = place("", a_runner(), project=project)
        assert not f"{job_place.folder}/".lower().startswith(f"{temporary}/")
        assert job_place.project == project
    assert place("", a_runner(), project="g/app.tmpl").folder == "abcdefghi/3-1a2b/g/app.tmpl"
