from pathlib import Path

import pytest

from remuda.localrun.job_words import split_words
from remuda.localrun.options import PipelineOptions


def test_warnings_about_secrets_are_left_to_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".gitlab-ci.yml").write_text("build: {script: make}\n")
    (tmp_path / "build").mkdir()
    secrets = tmp_path / "secrets.env"
    secrets.write_text("PIN=123\n")
    secrets.chmod(0o644)
    monkeypatch.chdir(tmp_path)
    assert split_words("build", (), PipelineOptions(secrets_file=(secrets,))) == (Path("."), ("build",))
    assert capsys.readouterr().err == (
        "remuda: there are a folder and a job build; running the job; for the folder: ./build\n"
    )
