"""gitlab-runner 12.7 works with a cell that serves HTTPS with a certificate of a private authority."""

from pathlib import Path

from tests.interop.conftest import PROGRAM, REGISTRATION_TOKEN
from tests.support.built_programs import require_built
from tests.support.cells.cell_process import CellProcess
from tests.support.certificates import Authority
from tests.support.runners.gitlab_runner import RealRunner

PIPELINE = """
job:
  script: [cat file.txt, echo made > made.txt]
  artifacts: {paths: [made.txt]}
"""


async def test_a_job_over_tls(tmp_path: Path) -> None:
    require_built(PROGRAM)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost", "127.0.0.1")
    cell = CellProcess(
        tmp_path / "cell", tls_certificate=certificate, tls_key=key, registration_token=REGISTRATION_TOKEN
    )
    cell.authority = authority.file
    with cell:
        runner = RealRunner(PROGRAM, tmp_path / "runner", url=cell.url, registration_token=REGISTRATION_TOKEN)
        runner.register("tls", "--tls-ca-file", str(authority.file))
        cell.new_project("app", PIPELINE, **{"file.txt": "of the repository\n"})
        runner.start()
        try:
            [job] = (await cell.wait_for_jobs()).values()
        finally:
            runner.stop()
    assert job["status"] == "success", job["log"] + runner.log()
    assert "of the repository" in job["log"]
    assert job["artifacts_file"]["filename"] == "artifacts.zip"
