"""What a job in a container gets from the runner's machine, and what it does not reach there."""

import asyncio
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.cli.main import call
from remuda.stdsteps.statements import NAME, read_statement
from remuda.telemetry.logs import configure
from remuda.testing.coordinator import Coordinator
from remuda.testing.docker_engine import BUSYBOX, DockerEngine
from remuda.testing.manager_bench import ManagerBench
from remuda.testing.served_cell import ServedCell
from remuda.testing.vault_server import FakeVault, serving_vault

PIPELINE = """
job:
  image: IMAGE
  id_tokens: {VAULT_ID_TOKEN: {aud: https://vault.example.com}}
  variables: {VAULT_SERVER_URL: "http://127.0.0.1:PORT", VAULT_AUTH_PATH: gitlab, VAULT_AUTH_ROLE: deploy}
  secrets:
    PLAIN: {vault: db/password@ops, file: false}
    KEPT: {vault: db/password@ops}
  script:
    - test ! -e KEY
    - test "$PLAIN" = "$(cat $KEPT)" && echo "it is $PLAIN"
    - mkdir out && echo built >out/app
    - ln -s FOLDER way && ln -s KEY out/link && ln -s KEY report.xml
  artifacts:
    paths: [out, way/key.pem]
    reports: {junit: report.xml}
"""


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[ServedCell]:
    # A cell in a thread logs while pytest swaps the standard streams.
    configure(level="error", log_format="text", stream=sys.__stderr__)
    with ServedCell(tmp_path / "cell") as served:
        yield served


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    with serving_vault() as state:
        state.jwt = None
        yield state


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
    path.chmod(0o600)
    subprocess.run(["openssl", "pkey", "-in", path, "-pubout", "-out", tmp_path / "public.pem"], check=True)
    return path


async def test_secrets_come_in_and_the_signing_key_stays_out(
    engine: DockerEngine, cell: ServedCell, vault: FakeVault, key: Path, tmp_path: Path
) -> None:
    bench = ManagerBench(tmp_path, Coordinator())
    bench.config.write_text(
        'concurrent = 2\ncheck_interval = 0.2\n[[runners]]\nname = "bench"\nexecutor = "docker"\n'
        f'url = "{cell.url}"\ntoken = "{cell.new_runner().token}"\n'
        f'[runners.docker]\nhost = "{engine.host}"\npull_policy = "never"\n[runners.remuda]\nsigning_key = "{key}"\n'
    )
    text = PIPELINE.replace("IMAGE", BUSYBOX).replace("PORT", str(vault.port))
    cell.new_project("app", text.replace("KEY", str(key)).replace("FOLDER", str(tmp_path)))
    [pushed] = await asyncio.to_thread(cell.until_pipelines, 1)
    path = f"/projects/1/pipelines/{pushed['id']}"

    def is_over() -> bool:
        return cell.api("GET", path).json()["status"] in ("success", "failed")

    async with bench.manager():
        await asyncio.to_thread(cell.until, is_over, "the pipeline ends", seconds=90)
    await bench.close()
    [job] = cell.api("GET", f"{path}/jobs").json()
    log = cell.api("GET", f"/projects/1/jobs/{job['id']}/trace").body.decode()
    assert job["status"] == "success", log
    assert "it is [MASKED]" in log
    data = cell.api("GET", f"/projects/1/jobs/{job['id']}/artifacts").body
    (tmp_path / "artifacts.zip").write_bytes(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert "way/key.pem" not in archive.namelist()
        assert archive.read("out/link") == bytes(key)
        assert read_statement(archive.read(NAME)).predicate["protection"] == "enforced"
        assert not any(b"PRIVATE KEY" in archive.read(name) for name in archive.namelist())
    assert call(["artifacts", "verify", str(tmp_path / "artifacts.zip"), "--key", str(tmp_path / "public.pem")]) == 0
    # A report is the content of a file, and this one's is not the job's.
    assert "junit" not in {one["file_type"] for one in job["artifacts"]}
