"""Where a job's sources go when the job says so."""

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


def choosing(path: str, project: str = "group/project", protected: bool | None = None) -> JobPayload:
    repo = {"repo_url": f"https://cell.example/{project}.git", "sha": "0" * 40, "ref": "main"}
    variables = [{"key": "CI_PROJECT_NAME", "value": "project"}, {"key": "GIT_CLONE_PATH", "value": path}]
    return a_payload(git_info=repo | {"protected": protected}, variables=variables)


def a_runner(enabled: bool | None = True, **values: Any) -> RunnerConfig:
    values = {"token": "glrt-t1_abcdefghijk", "executor": "shell"} | values
    return RunnerConfig(custom_build_dir=CustomBuildDirConfig(enabled=enabled), **values)


def chosen(path: str, enabled: bool | None = True, **runner: Any) -> str:
    return clone_path(choosing(path), a_runner(enabled, **runner), slot=3)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$CI_BUILDS_DIR/go/src/$CI_PROJECT_NAME", "go/src/project"),
        ("${CI_BUILDS_DIR}/$CI_CONCURRENT_ID/./x/", "3/x"),
        ("$CI_BUILDS_DIR/a/../b c", "b c"),
        ("/srv/builds/x", "x"),
        ("", ""),
    ],
)
def test_the_folder_is_found_below_that_of_builds(path: str, found: str) -> None:
    assert chosen(path, builds_dir="/srv/builds/") == found


@pytest.mark.parametrize(
    "path",
    [
        *("$CI_BUILDS_DIR", "$CI_BUILDS_DIR/..", "$CI_BUILDS_DIR/../x", "$CI_BUILDS_DIR/a/../../x", "/etc", "x", "~/x"),
        *("$CI_PROJECT_DIR/x", "$CI_BUILDS_DIR.x/y", "$CI_BUILDS_DIR/a\nb", "$CI_BUILDS_DIR/$$x", "$CI_BUILDS_DIR/a'b"),
    ],
)
def test_folders_elsewhere_are_refused(path: str) -> None:
    with pytest.raises(CompileError, match=r"GIT_CLONE_PATH: .* is not a folder in \$CI_BUILDS_DIR; write it as"):
        chosen(path)


def test_a_runner_may_not_allow_it() -> None:
    for enabled in (None, False):
        with pytest.raises(CompileError, match=r"set enabled = true in \[runners.custom_build_dir\]"):
            chosen("$CI_BUILDS_DIR/x", enabled)
    with pytest.raises(CompileError, match="does not let jobs choose"):
        chosen("$CI_BUILDS_DIR/x", enabled=False, executor="docker")
    assert chosen("$CI_BUILDS_DIR/x", enabled=None, executor="docker") == "x"
    assert chosen("$CI_BUILDS_DIR/x", enabled=None, executor="docker-autoscaler") == "x"


def test_a_runners_environment_may_choose_too() -> None:
    payload = msgspec.structs.replace(choosing(""), variables=[])
    assert clone_path(payload, a_runner(environment=("GIT_CLONE_PATH=$CI_BUILDS_DIR/x",)), slot=0) == "x"


def placed(path: str, runner: RunnerConfig, *, has_own_folder: bool = False, **payload: Any) -> JobPlace:
    row = a_row("5-abc", job_id=5, manager="1a2b")
    return place_of(row, choosing(path, **payload), runner, has_own_folder=has_own_folder)


def test_a_place_has_the_chosen_folder() -> None:
    found = placed("$CI_BUILDS_DIR/x/y", a_runner())
    assert (found.folder, found.temporary_folder) == ("x/y", "x/y.tmp")
    assert placed("", a_runner()).folder == "abcdefghi/3-1a2b/group/project"
    assert placed("/etc", a_runner()).folder == "abcdefghi/3-1a2b/group/project"


def test_jobs_that_must_not_meet_have_no_folder_in_common() -> None:
    container = a_runner(executor="docker")
    found = [placed(f"$CI_BUILDS_DIR/{path}", container).folder for path in ("a", "a/b", "a/b")]
    assert found[1] == found[2]
    assert found[1].endswith("/a/b")
    roots = {folder.removesuffix("/a").removesuffix("/a/b") for folder in found}
    assert len(roots) == 2
    assert all(root.startswith("abcdefghi/3-1a2b/@") for root in roots)
    for own in (RemudaConfig(run_as="4000"), RemudaConfig(sandbox=True)):
        assert "/@" in placed("$CI_BUILDS_DIR/a", a_runner(remuda=own)).folder


def test_a_folder_of_the_jobs_own_goes_with_it() -> None:
    found = placed("$CI_BUILDS_DIR/a", a_runner(), has_own_folder=True)
    assert found.folder.startswith("abcdefghi/job-5/@")
    assert found.temporary_folder == "abcdefghi/job-5"


def test_jobs_of_protected_refs_have_folders_of_their_own() -> None:
    found = {value: placed("", a_runner(), protected=value) for value in (True, False, None)}
    assert found[True].folder == "abcdefghi/3-1a2b-protected/group/project"
    assert found[False].folder == found[None].folder == "abcdefghi/3-1a2b/group/project"
    chosen = placed("$CI_BUILDS_DIR/a", a_runner(executor="docker"), protected=True)
    assert chosen.folder.startswith("abcdefghi/3-1a2b-protected/@")
    assert placed("", a_runner(), has_own_folder=True, protected=True).temporary_folder == "abcdefghi/job-5"


def test_no_project_works_in_the_temporary_folder_of_another() -> None:
    temporary = placed("", a_runner(), project="g/app").temporary_folder
    assert temporary == "abcdefghi/3-1a2b/g/app.tmp"
    for project in ("g/app.tmp", "g/app.tmp/sub", "g/app.TMP"):
        place = placed("", a_runner(), project=project)
        assert not f"{place.folder}/".lower().startswith(f"{temporary}/")
        assert place.project == project
    assert placed("", a_runner(), project="g/app.tmpl").folder == "abcdefghi/3-1a2b/g/app.tmpl"
