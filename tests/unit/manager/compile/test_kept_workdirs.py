"""The stored work folder and variables of a failed job."""

from pathlib import Path

from remuda.manager.compile.kept_workdirs import read_kept_job, remove, write
from remuda.wire.agent_client import JobVariable


def test_variables_and_files_are_stored_until_they_are_removed(tmp_path: Path) -> None:
    variables = [
        JobVariable(key="PLAIN", value="one"),
        JobVariable(key="CERT", value="secret\n", file=True),
        JobVariable(key="HUGE", value="x" * 200_000),
    ]
    assert read_kept_job(tmp_path, 7) is None
    for _ in range(2):
        write(tmp_path, 7, work_dir="/b/p", variables=variables)
    kept_job = read_kept_job(tmp_path, 7)
    assert kept_job is not None
    assert kept_job.work_dir == Path("/b/p")
    assert kept_job.environment.keys() == {"PLAIN", "CERT", "CI_JOB_STATUS"}
    certificate = Path(kept_job.environment["CERT"])
    assert certificate.read_text() == "secret\n"
    for path in (certificate, tmp_path / "kept/7/job.json"):
        assert path.stat().st_mode & 0o077 == 0
    for _ in range(2):
        remove(tmp_path, 7)
    assert read_kept_job(tmp_path, 7) is None
    assert not certificate.exists()
