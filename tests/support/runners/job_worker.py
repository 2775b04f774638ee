"""A runner that ends every job with success after it has uploaded one artifact: for tests of API clients."""

import io
import threading
import zipfile
from typing import Self

from tests.support.cells.served_cell import ScriptedRunner, ServedCell

ARTIFACT_NAME, ARTIFACT_CONTENT = "out", "made by a job\n"
_IDLE_SECONDS = 0.1


class JobWorker:
    """Takes all jobs of a cell while the `with` block runs."""

    def __init__(self, cell: ServedCell) -> None:
        self._runner: ScriptedRunner = cell.new_runner(description="worker")
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="job-worker", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._run_next_job()
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            self._failure = error

    def _run_next_job(self) -> None:
        answer = self._runner.ask()
        if answer.status != 201:
            assert answer.status == 204, answer
            self._stop.wait(_IDLE_SECONDS)
            return
        job = answer.json()
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as files:
            files.writestr(ARTIFACT_NAME, ARTIFACT_CONTENT)
        log = f"log of {job['job_info']['name']}\n".encode()
        # The client may have cancelled the job in the meantime: then the cell refuses these calls.
        self._runner.patch(job, 0, log)
        self._runner.upload(job, archive.getvalue(), query="?artifact_format=zip&artifact_type=archive")
        self._runner.put(job, "success")
