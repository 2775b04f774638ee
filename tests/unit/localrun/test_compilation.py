import io
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remuda.cli.main import call
from remuda.lib.exits import BadInputError
from remuda.localrun.compilation import prepare
from remuda.localrun.options import PipelineOptions

MakeRepo = Callable[..., Any]
JOB = "job: {script: [x]}\n"


def test_a_folder(make_repo: MakeRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make_repo()
    repo.put(".gitlab-ci.yml", "include: ci.yml")
    repo.put("ci.yml", JOB)
    monkeypatch.chdir(repo.folder)
    file = prepare(Path("."), PipelineOptions(variable=("A=1",)))
    assert (file.name, file.folder, file.occasion) == (".gitlab-ci.yml", repo.folder, "a push of main")
    assert file.facts.variables == {"A": "1"}
    assert [job.name for job in file.compile().jobs] == ["job"]
    assert file.merge_yaml() == "---\njob:\n  script:\n  - x\n"


@pytest.mark.parametrize(
    ("options", "occasion"),
    [
        ({"event": "merge_request", "ref": "fix"}, "a merge request of fix into main"),
        ({"tag": "v1"}, "a push of tag v1"),
        ({"event": "schedule"}, "schedule on main"),
    ],
)
def test_the_occasion_text(make_repo: MakeRepo, options: dict[str, str], occasion: str) -> None:
    repo = make_repo()
    repo.put(".gitlab-ci.yml", JOB)
    keywords: Any = options
    assert prepare(repo.folder, PipelineOptions(**keywords)).occasion == occasion


def test_the_limit_of_needs(make_repo: MakeRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make_repo()
    repo.put(".gitlab-ci.yml", JOB)
    monkeypatch.setenv("REMUDA_NEEDS_LIMIT", "7")
    assert prepare(repo.folder, PipelineOptions()).facts.needs_limit == 7
    monkeypatch.setenv("REMUDA_NEEDS_LIMIT", "many")
    with pytest.raises(BadInputError, match="REMUDA_NEEDS_LIMIT many: must be a number"):
        prepare(repo.folder, PipelineOptions())


def test_another_file(make_repo: MakeRepo, tmp_path: Path) -> None:
    other = tmp_path / "other.yml"
    other.write_text(JOB)
    file = prepare(make_repo().folder, PipelineOptions(file=other))
    assert (file.name, file.text) == (str(other), JOB)


def test_a_file_in_place_of_the_folder(make_repo: MakeRepo, tmp_path: Path) -> None:
    repo = make_repo()
    repo.put("ci/jobs.yml", JOB)
    assert prepare(repo.folder / "ci" / "jobs.yml", PipelineOptions()).folder == repo.folder
    (tmp_path / "alone.yml").write_text(JOB)
    assert prepare(tmp_path / "alone.yml", PipelineOptions()).folder == tmp_path


def test_stdin(make_repo: MakeRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(JOB.encode())))
    assert prepare(make_repo().folder, PipelineOptions(file=Path("-"))).text == JOB


def test_stdin_is_a_lone_hyphen_on_the_command_line(
    make_repo: MakeRepo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(JOB.encode())))
    assert call(["pipeline", "lint", str(make_repo().folder), "--file", "-"]) == 0
    assert "- is good" in capsys.readouterr().out


def test_a_sub_folder_means_the_repository_around_it(make_repo: MakeRepo, capsys: pytest.CaptureFixture[str]) -> None:
    repo = make_repo()
    repo.put("src/deep/code", "")
    with pytest.raises(BadInputError, match="write one"):
        prepare(repo.folder / "src", PipelineOptions())
    repo.put(".gitlab-ci.yml", JOB)
    capsys.readouterr()
    file = prepare(repo.folder / "src/deep", PipelineOptions())
    assert (file.folder, file.text) == (repo.folder, JOB)
    said = f"src/deep has no .gitlab-ci.yml; using the repository around it: {repo.folder}\n"
    assert capsys.readouterr().err.endswith(said)
    repo.put("src/.gitlab-ci.yml", JOB)
    assert prepare(repo.folder / "src", PipelineOptions()).folder == repo.folder / "src"
    other = prepare(repo.folder / "src/deep", PipelineOptions(file=repo.folder / "src/.gitlab-ci.yml"))
    assert other.folder == repo.folder / "src/deep"
    assert capsys.readouterr().err == ""


def test_everything_the_options_name_is_used(make_repo: MakeRepo, tmp_path: Path) -> None:
    other = make_repo("other", jobs_yml="far: {script: [x]}")
    repo = make_repo()
    text = "spec: {inputs: {n: {type: number}}}\n---\ninclude: {project: group/other, file: jobs.yml}\n"
    repo.put(".gitlab-ci.yml", f"{text}near:\n  script: [x]\n  parallel: $[[ inputs.n ]]")
    (tmp_path / "v.env").write_text("A=1")
    options = PipelineOptions(
        project=(f"group/other={other.folder}",), inputs=("n=2",), variables_file=(tmp_path / "v.env",)
    )
    file = prepare(repo.folder, options)
    assert [job.name for job in file.compile().jobs] == ["far", "near 1/2", "near 2/2"]
    assert file.facts.variables == {"A": "1"}
    assert file.sources.texts == {"group/other:jobs.yml": "far: {script: [x]}"}


def test_bad_input(make_repo: MakeRepo, tmp_path: Path) -> None:
    folder = make_repo().folder
    file = folder / ".gitlab-ci.yml"

    def error_message(path: Path = folder, **options: Any) -> str:
        with pytest.raises(BadInputError) as caught:
            prepare(path, PipelineOptions(**options))
        return str(caught.value)

    assert "there is no pipeline file" in error_message()
    assert "there is no such folder" in error_message(tmp_path / "none")
    assert "there is no such folder" in error_message(Path("a\0b"))
    file.write_bytes(b"job:\n  script: \xff")
    assert ".gitlab-ci.yml:2: is not UTF-8 text" in error_message()
    assert "give the folder" in error_message(file, file=Path("x"))
    file.write_bytes(b"#" * ((1 << 20) + 1))
    assert "larger than 1048576 bytes" in error_message()
    file.unlink()
    os.mkfifo(file)
    assert "it is a pipe" in error_message()
    file.unlink()
    file.symlink_to("/etc/passwd")
    assert "is a link that leads out of the folder" in error_message()
    file.unlink()
    file.mkdir()
    assert "Is a directory" in error_message()
    assert "GROUP/NAME=FOLDER" in error_message(project=("a/b",))
    assert "there is no folder" in error_message(project=("a/b=/none",))
    assert "--allow-remote" in error_message(allow_remote=("ftp://x",))
