"""Small uploads that are expensive to read do not exhaust the memory; clients that do not read are disconnected.

The tests measure the peak memory of the cell's process, with a wide margin. An attack sends a few hundred kilobytes.
"""

import base64
import gzip
import hashlib
import http.client
import io
import json
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.cell_process import CellProcess
from tests.support.cells.lfs_client import Lfs, basic
from tests.support.cells.served_cell import ADMIN_TOKEN, Answer

from remuda.testing.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

READERS = 8
MARGIN_BYTES = 350 * 1024 * 1024
"""How much a cell may grow under one attack. Without limits the attacks took one to six gigabytes."""
JUNIT = "?artifact_type=junit&artifact_format=gzip"
PIPELINE = "build: {script: [make], artifacts: {paths: [out], reports: {junit: '*.xml'}}}"


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[CellProcess]:
    with CellProcess(tmp_path / "cell") as served:
        yield served


@pytest.fixture
def impatient_cell(tmp_path: Path) -> Iterator[CellProcess]:
    """A cell that disconnects readers after two seconds without progress."""
    with CellProcess(tmp_path / "cell", reader_silent_seconds=2) as served:
        yield served


def upload_artifact(cell: CellProcess, content: bytes, query: str = "") -> tuple[int, dict[str, Any]]:
    """Create a project and a job that uploaded this content; return the project's id and the job."""
    project = cell.new_project("app", PIPELINE)
    runner = cell.new_runner()
    job = runner.take()
    assert runner.upload(job, content, query=query).status == 201
    return project, job


def call_concurrently(call: Callable[[], Answer]) -> list[Answer]:
    with ThreadPoolExecutor(READERS) as threads:
        return [future.result() for future in [threads.submit(call) for _ in range(READERS)]]


def nested_suites() -> bytes:
    """Test suites inside of test suites, about 60 MB unpacked."""
    return b"<testsuite>" * 2_700_000 + b"</testsuite>" * 2_700_000


def many_cases() -> bytes:
    names = "\U0001f600" * 1000
    case = f'<testcase name="{names}" classname="{names}" file="{names}"/>'.encode()
    return b"<testsuite>" + case * 5000 + b"</testsuite>"


def one_large_tag() -> bytes:
    return b'<testsuite><testcase name="' + b"x" * 60_000_000 + b'"/></testsuite>'


def many_attributes() -> bytes:
    attributes = b" ".join(b'a%d=""' % number for number in range(4_000_000))
    return b"<testsuite><testcase " + attributes + b"/></testsuite>"


@pytest.mark.parametrize(
    ("make", "reason"),
    [(nested_suites, "levels"), (many_cases, None), (one_large_tag, "larger than"), (many_attributes, "larger than")],
)
def test_junit_report_cannot_exhaust_memory(cell: CellProcess, make: Callable[[], bytes], reason: str | None) -> None:
    project, _ = upload_artifact(cell, gzip.compress(make(), mtime=0), JUNIT)
    [pipeline] = cell.until_pipelines(1)
    before = cell.peak_bytes()
    answers = call_concurrently(lambda: cell.api("GET", f"/projects/{project}/pipelines/{pipeline['id']}/test_report"))
    assert [answer.status for answer in answers] == [200] * READERS
    assert len({answer.body for answer in answers}) == 1
    [suite] = answers[0].json()["test_suites"]
    assert reason is None or reason in suite["suite_error"]
    assert cell.peak_bytes() - before < MARGIN_BYTES


def archive(count: int, large: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("large", large, zipfile.ZIP_DEFLATED)
        for number in range(count):
            file.writestr(f"f{number}", b"")
    return buffer.getvalue()


def connect_slow_reader(cell: CellProcess, path: str) -> socket.socket:
    """Send a request, and read nothing of the response."""
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = cell.url.removeprefix("http://").split(":")
    caller.connect((host, int(port)))
    caller.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nPRIVATE-TOKEN: {ADMIN_TOKEN}\r\n\r\n".encode())
    return caller


def test_slow_readers_of_an_archive_hold_no_directory(impatient_cell: CellProcess) -> None:
    project, job = upload_artifact(impatient_cell, archive(150_000, bytes(50_000_000)))
    before = impatient_cell.peak_bytes()
    with ExitStack() as callers:
        for _ in range(READERS):
            callers.enter_context(
                connect_slow_reader(impatient_cell, f"/api/v4/projects/{project}/jobs/{job['id']}/artifacts/large")
            )
        wait_until(lambda: impatient_cell.open_files("/blobs/kept/") == READERS, "all readers have begun")
        wait_until(lambda: impatient_cell.open_files("/blobs/kept/") == 0, "slow readers are disconnected", 60)
    listed = impatient_cell.send(
        "GET", f"/api/remuda/v1/jobs/{job['id']}/artifacts/files?page=1501&per_page=100", PRIVATE_TOKEN=ADMIN_TOKEN
    )
    assert listed.headers["X-Total"] == "150001"
    assert [entry["path"] for entry in listed.json()] == ["f149999"]
    assert impatient_cell.peak_bytes() - before < 120 * 1024 * 1024


def test_a_client_that_does_not_read_a_whole_response_is_disconnected(impatient_cell: CellProcess) -> None:
    project = impatient_cell.new_project("app", notes="x" * 8_000_000)
    caller = connect_slow_reader(impatient_cell, f"/api/v4/projects/{project}/repository/files/notes?ref=main")
    with caller:
        connections = f"tcp connections of {caller.getsockname()}"
        port = caller.getsockname()[1]
        wait_until(lambda: port in connected_ports(impatient_cell), f"{connections} begin")
        wait_until(lambda: port not in connected_ports(impatient_cell), f"{connections} end", 60)


def test_a_frozen_cell_does_not_disconnect_its_readers(impatient_cell: CellProcess) -> None:
    project = impatient_cell.new_project("app", notes="x" * 8_000_000)
    path = f"/api/v4/projects/{project}/repository/files/notes?ref=main"
    with connect_slow_reader(impatient_cell, path) as caller:
        assert caller.recv(1), "the response has begun"
        for _ in range(2):  # in the first two seconds the kernel buffers enough to count as progress
            impatient_cell.freeze(3)
            threading.Event().wait(0.2)  # the cell checks its timers before anything is read
        caller.settimeout(60)
        size = 0
        while size < 10_000_000 and (piece := caller.recv(1_000_000)):
            size += len(piece)
    assert size > 10_000_000


def connected_ports(cell: CellProcess) -> set[int]:
    """Return the ports of the clients that are connected to the cell."""
    own = f"{int(cell.url.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[2].partition(":")[2], 16) for row in rows if row[1].endswith(f":{own}") and row[3] == "01"}


def test_a_client_that_reads_slowly_but_steadily_gets_everything(impatient_cell: CellProcess) -> None:
    project, job = upload_artifact(impatient_cell, archive(10, bytes(8_000_000)))
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
    """Each of these requests alone needs a few hundred megabytes."""
    size = 20_000_000
    project = cell.new_project("app", notes="first")
    content = base64.b64encode(bytes(size)).decode()
    change = {"branch": "main", "commit_message": "m", "encoding": "base64", "content": content}
    body = json.dumps(change).encode()
    path = f"/projects/{project}/repository/files/notes"
    before = cell.peak_bytes()
    written = call_concurrently(lambda: cell.api("PUT", path, body, Content_Type="application/json"))
    assert {answer.status for answer in written} <= {200, 400, 409}
    assert 200 in {answer.status for answer in written}
    read = call_concurrently(lambda: cell.api("GET", f"{path}?ref=main"))
    assert [(answer.status, answer.json()["size"]) for answer in read] == [(200, size)] * READERS
    assert cell.peak_bytes() - before < 600 * 1024 * 1024


def test_large_lfs_objects_are_not_in_memory(cell: CellProcess) -> None:
    """Four uploads and four downloads of 250 MB at the same time."""
    cell.new_project("app")
    lfs = Lfs(cell, "root/app", basic(ADMIN_TOKEN))
    piece, count = bytes(range(256)) * 4096, 250
    digest = hashlib.sha256()
    for _ in range(count):
        digest.update(piece)
    oid, size = digest.hexdigest(), count * len(piece)
    before = cell.peak_bytes()
    with ThreadPoolExecutor(4) as threads:
        place = f"gitlab-lfs/objects/{oid}/{size}"
        sent = [threads.submit(lfs.send, "PUT", place, iter([piece] * count)) for _ in range(4)]
        assert [future.result().status for future in sent] == [200] * 4
        ends = [threads.submit(lfs.get, oid, Range=f"bytes={size - 100}-") for _ in range(4)]
        assert all(future.result().body == piece[-100:] for future in ends)
    received = hashlib.sha256()
    with closing(cell.connect()) as connection:
        token = {"Authorization": basic(ADMIN_TOKEN)}
        connection.request("GET", f"/root/app.git/gitlab-lfs/objects/{oid}", headers=token)
        answer = connection.getresponse()
        while part := answer.read(1024 * 1024):
            received.update(part)
    assert received.hexdigest() == oid
    assert cell.peak_bytes() - before < 100 * 1024 * 1024
