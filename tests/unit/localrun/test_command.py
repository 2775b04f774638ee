import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.lib.exits import BadInputError
from remuda.localrun.command import resolve, run
from remuda.localrun.compilation import prepare
from remuda.localrun.options import PipelineOptions, RunOptions
from remuda.localrun.sources.snapshot import Snapshot
from remuda.localrun.startup import remove_tree
from remuda.localrun.upload import Choice, request_of

MakeRepo = Callable[..., Any]

FILE = """
stages: [build, test]
compile: {stage: build, script: [make]}
lint: {stage: build, script: [lint]}
unit: {stage: test, needs: [compile], parallel: 2, script: [test]}
ship:
  stage: test
  script: [ship]
  rules:
    - changes: {paths: [src/*], compare_to: stable}
"""


def selected_jobs(folder: Path, *jobs: str, stages: tuple[str, ...] = (), with_needs: bool = True) -> list[str]:
    options = RunOptions(job=jobs, stage=stages, no_needs=not with_needs)
    spec = resolve(prepare(folder, PipelineOptions()), options)
    assert spec is not None
    return [job.name for job in spec.pipeline.jobs]


def test_chosen_jobs_come_with_their_needs_or_without(make_repo: MakeRepo) -> None:
    repo = make_repo(**{".gitlab-ci_yml": FILE})
    repo.git("branch", "stable")
    assert selected_jobs(repo.folder) == ["compile", "lint", "unit 1/2", "unit 2/2"]
    assert selected_jobs(repo.folder, "unit") == ["compile", "unit 1/2", "unit 2/2"]
    assert selected_jobs(repo.folder, "unit 2/2", with_needs=False) == ["unit 2/2"]
    assert selected_jobs(repo.folder, stages=("build",)) == ["compile", "lint"]
    with pytest.raises(BadInputError, match=r'did you mean "compile".*--list'):
        selected_jobs(repo.folder, "compil")
    with pytest.raises(BadInputError, match='"ship" is not in this pipeline'):
        selected_jobs(repo.folder, "ship")


def test_the_refs_that_rules_compare_with_are_collected(make_repo: MakeRepo) -> None:
    repo = make_repo(**{".gitlab-ci_yml": FILE})
    repo.git("branch", "stable")
    spec = resolve(prepare(repo.folder, PipelineOptions()), RunOptions())
    assert spec is not None
    assert spec.compared == {"stable"}


def test_the_request_has_the_facts_of_the_work_tree(make_repo: MakeRepo, tmp_path: Path) -> None:
    repo = make_repo(**{".gitlab-ci_yml": FILE})
    repo.git("branch", "stable")
    (tmp_path / "given.yml").write_text("PRICE: {value: 5$, expand: false}\n")
    options = PipelineOptions(
        event="merge_request", ref="topic", variable=("A=$B",), variables_file=(tmp_path / "given.yml",)
    )
    file = prepare(repo.folder, options)
    snapshot = Snapshot(git_dir=tmp_path, sha="a" * 40, ref="refs/merge-requests/1/head", since="b" * 40)
    request = request_of(file, snapshot, Choice(jobs=("unit",), with_needs=False))
    assert (request.ref, request.sha, request.changes_since) == (snapshot.ref, snapshot.sha, snapshot.since)
    assert (request.source, request.jobs, request.with_needs) == ("merge_request_event", ("unit",), False)
    assert request.variables == {"A": "$B", "PRICE": "5$$"}
    assert request.predefined["CI_MERGE_REQUEST_SOURCE_BRANCH_NAME"] == "topic"
    assert "CI_SERVER_HOST" not in request.predefined
    assert request.text == file.text


def test_the_error_for_a_missing_file_shows_a_minimal_one(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"hello:\n +script:"):
        run(tmp_path)


def test_if_rules_leave_out_all_jobs_nothing_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".gitlab-ci.yml").write_text("a: {script: [b], rules: [{if: $CI_COMMIT_TAG}]}\n")
    assert run(tmp_path) == 0
    assert "no pipeline" in capsys.readouterr().out


def test_list_shows_jobs_that_run_and_those_left_out(make_repo: MakeRepo, capsys: pytest.CaptureFixture[str]) -> None:
    repo = make_repo(**{".gitlab-ci_yml": FILE})
    repo.git("branch", "stable")
    assert run(repo.folder, options=RunOptions(job=("unit 1/2",), list_only=True)) == 0
    output = capsys.readouterr().out
    assert "2 jobs in 2 stages, 1 left out by rules" in output
    listed, _, left_out = output.partition("\nleft out\n")
    assert listed.index("compile") < listed.index("unit 1/2")
    assert "unit 2/2" not in listed
    assert [line.split("  ")[1].strip() for line in left_out.splitlines()] == ["lint", "unit 2/2", "ship"]
    assert "not chosen, and not needed" in left_out


def test_folders_without_write_permission_are_removed_too(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    locked = folder / "cache" / "locked"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x")
    (locked / "link").symlink_to("/nowhere")
    locked.chmod(0o500)
    (folder / "cache").chmod(0o500)
    remove_tree(folder)
    assert not folder.exists()


def test_a_folder_for_artifacts_that_cannot_be_made_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="--artifacts /proc/x: cannot be made"):
        run(tmp_path, options=RunOptions(artifacts=Path("/proc/x")))


def test_the_list_as_json(make_repo: MakeRepo, capsys: pytest.CaptureFixture[str]) -> None:
    repo = make_repo(**{".gitlab-ci_yml": FILE})
    repo.git("branch", "stable")
    assert run(repo.folder, options=RunOptions(job=("unit",), list_only=True, output="json")) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [job["name"] for job in listed["jobs"]] == ["compile", "unit 1/2", "unit 2/2"]
    assert [job["name"] for job in listed["left_out"]] == ["lint", "ship"]


def test_no_pipeline_as_json(make_repo: MakeRepo, capsys: pytest.CaptureFixture[str]) -> None:
    repo = make_repo(**{".gitlab-ci_yml": "workflow: {rules: [{when: never}]}\na: {script: [x]}\n"})
    assert run(repo.folder, options=RunOptions(output="json")) == 0
    captured = capsys.readouterr()
    assert "no pipeline" in captured.err
    document = json.loads(captured.out)
    assert (document["status"], document["pipeline_id"], document["jobs"]) == ("skipped", None, [])


def test_an_unknown_manual_job_is_refused(make_repo: MakeRepo) -> None:
    repo = make_repo(**{".gitlab-ci_yml": "a: {script: [x]}\nship: {script: [x], when: manual}\n"})
    with pytest.raises(BadInputError, match="--manual shpi: this run has no such job; its manual jobs: ship"):
        run(repo.folder, options=RunOptions(manual=("shpi",)))
