"""What small uploads cost the cell when many read them: memory is bounded, and readers who do not read go.

Measured is the peak of the cell's own process, with a wide margin. The attacks need a few hundred kilobytes each.
"""

import base64
import gzip
import http.client
import io
import json
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.cell_process import CellProcess
from tests.support.cells.served_cell import ADMIN_TOKEN, Answer

from remuda.testing.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

READERS = 8
MARGIN_BYTES = 350 * 1024 * 1024
"""What a cell may grow by under one attack. The attacks took one to six gigabytes."""
JUNIT = "?artifact_type=junit&artifact_format=gzip"
PIPELINE = "build: {script: [make], artifacts: {paths: [out], reports: {junit: '*.xml'}}}"


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[CellProcess]:
    with CellProcess(tmp_path / "cell") as served:
        yield served


@pytest.fixture
def impatient_cell(tmp_path: Path) -> Iterator[CellProcess]:
    """A cell that cuts off readers after two seconds without progress."""
    with CellProcess(tmp_path / "cell", reader_silent_seconds=2) as served:
        yield served


def with_upload(cell: CellProcess, content: bytes, query: str = "") -> tuple[int, dict[str, Any]]:
    """A project with a job that has uploaded this; the project's id, and the job."""
    project = cell.new_project("app", PIPELINE)
    runner = cell.new_runner()
    job = runner.take()
    assert runner.upload(job, content, query=query).status == 201
    return project, job


def at_once(ask: Callable[[], Answer]) -> list[Answer]:
    with ThreadPoolExecutor(READERS) as threads:
        return [asked.result() for asked in [threads.submit(ask) for _ in range(READERS)]]


def nested() -> bytes:
    """Suites in suites, about 60 MB unpacked."""
    return b"<testsuite>" * 2_700_000 + b"</testsuite>" * 2_700_000


def many_cases() -> bytes:
    names = "\U0001f600" * 1000
    case = f'<testcase name="{names}" classname="{names}" file="{names}"/>'.encode()
    return b"<testsuite>" + case * 5000 + b"</testsuite>"


def one_tag() -> bytes:
    return b'<testsuite><testcase name="' + b"x" * 60_000_000 + b'"/></testsuite>'


def many_attributes() -> bytes:
    attributes = b" ".join(b'a%d=""' % number for number in range(4_000_000))
    return b"<testsuite><testcase " + attributes + b"/></testsuite>"


@pytest.mark.parametrize(
    ("make", "reason"),
    [(nested, "levels"), (many_cases, None), (one_tag, "larger than"), (many_attributes, "larger than")],
)
def test_a_junit_report_cannot_take_the_memory(
    cell: CellProcess, make: Callable[[], bytes], reason: str | None
) -> None:
    project, _ = with_upload(cell, gzip.compress(make(), mtime=0), JUNIT)
    [pipeline] = cell.until_pipelines(1)
    before = cell.peak_bytes()
    answers = at_once(lambda: cell.api("GET", f"/projects/{project}/pipelines/{pipeline['id']}/test_report"))
    assert [answer.status for answer in answers] == [200] * READERS
    assert len({answer.body for answer in answers}) == 1
    [suite] = answers[0].json()["test_suites"]
    assert reason is None or reason in suite["suite_error"]
    assert cell.peak_bytes() - before < MARGIN_BYTES


def archive(count: int, large: bytes) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as made:
        made.writestr("large", large, zipfile.ZIP_DEFLATED)
        for number in range(count):
            made.writestr(f"f{number}", b"")
    return whole.getvalue()


def slow_reader(cell: CellProcess, path: str) -> socket.socket:
    """Asks and does not read."""
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = cell.url.removeprefix("http://").split(":")
    caller.connect((host, int(port)))
    caller.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nPRIVATE-TOKEN: {ADMIN_TOKEN}\r\n\r\n".encode())
    return caller


def test_slow_readers_of_an_archive_hold_no_directory(impatient_cell: CellProcess) -> None:
    project, job = with_upload(impatient_cell, archive(150_000, bytes(50_000_000)))
    before = impatient_cell.peak_bytes()
    with ExitStack() as callers:
        for _ in range(READERS):
            callers.enter_context(
                slow_reader(impatient_cell, f"/api/v4/projects/{project}/jobs/{job['id']}/artifacts/large")
            )
        wait_until(lambda: impatient_cell.open_files("/blobs/kept/") == READERS, "all of them read")
        wait_until(lambda: impatient_cell.open_files("/blobs/kept/") == 0, "those who do not read are cut off", 60)
    listed = impatient_cell.send(
        "GET", f"/api/remuda/v1/jobs/{job['id']}/artifacts/files?page=1501&per_page=100", PRIVATE_TOKEN=ADMIN_TOKEN
    )
    assert listed.headers["X-Total"] == "150001"
    assert [entry["path"] for entry in listed.json()] == ["f149999"]
    assert impatient_cell.peak_bytes() - before < 120 * 1024 * 1024


def test_a_reader_who_does_not_read_a_whole_answer_goes(impatient_cell: CellProcess) -> None:
    project = impatient_cell.new_project("app", notes="x" * 8_000_000)
    caller = slow_reader(impatient_cell, f"/api/v4/projects/{project}/repository/files/notes?ref=main")
    with caller:
        connections = f"tcp connections of {caller.getsockname()}"
        port = caller.getsockname()[1]
        wait_until(lambda: port in established(impatient_cell), f"{connections} begin")
        wait_until(lambda: port not in established(impatient_cell), f"{connections} end", 60)


def test_a_stop_of_the_cell_is_not_taken_for_silence_of_its_readers(impatient_cell: CellProcess) -> None:
    project = impatient_cell.new_project("app", notes="x" * 8_000_000)
    path = f"/api/v4/projects/{project}/repository/files/notes?ref=main"
    with slow_reader(impatient_cell, path) as caller:
        assert caller.recv(1), "the answer has begun"
        for _ in range(2):  # in the first two seconds the kernel takes enough to count as progress
            impatient_cell.freeze(3)
            threading.Event().wait(0.2)  # the cell looks at its timers before anything is read
        caller.settimeout(60)
        size = 0
        while size < 10_000_000 and (piece := caller.recv(1_000_000)):
            size += len(piece)
    assert size > 10_000_000


def established(cell: CellProcess) -> set[int]:
    """The ports of the callers that have a connection to the cell."""
    own = f"{int(cell.url.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[2].partition(":")[2], 16) for row in rows if row[1].endswith(f":{own}") and row[3] == "01"}


def test_a_reader_who_reads_slowly_but_steadily_gets_all(impatient_cell: CellProcess) -> None:
    project, job = with_upload(impatient_cell, archive(10, bytes(8_000_000)))
    host, port = impatient_cell.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request(
        "GET", f"/api/v4/projects/{project}/jobs/{job['id']}/artifacts/large", headers={"PRIVATE-TOKEN": ADMIN_TOKEN}
    )
    answer = connection.getresponse()
    size = 0
    pause = threading.Event()
    while piece := answer.read(800_000):
        size += len(piece)
        pause.wait(0.5)
    connection.close()
    assert size == 8_000_000


def test_whole_files_are_read_and_written_one_after_the_other(cell: CellProcess) -> None:
    """Each of these alone takes a few hundred megabytes."""
    size = 20_000_000
    project = cell.new_project("app", notes="first")
    content = base64.b64encode(bytes(size)).decode()
    change = {"branch": "main", "commit_message": "m", "encoding": "base64", "content": content}
    body = json.dumps(change).encode()
    path = f"/projects/{project}/repository/files/notes"
    before = cell.peak_bytes()
    written = at_once(lambda: cell.api("PUT", path, body, Content_Type="application/json"))
    assert {answer.status for answer in written} <= {200, 400, 409}
    assert 200 in {answer.status for answer in written}
    read = at_once(lambda: cell.api("GET", f"{path}?ref=main"))
    assert [(answer.status, answer.json()["size"]) for answer in read] == [(200, size)] * READERS
    assert cell.peak_bytes() - before < 600 * 1024 * 1024
