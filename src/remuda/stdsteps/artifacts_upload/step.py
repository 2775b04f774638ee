"""The step `artifacts_upload`: packs files of the working directory and sends them to the server. The archive is built
on disk and streamed from there, so neither its size nor a retry costs memory. Formats: zip, with the names of the
files; gzip, for reports, with each file as a member of one stream; raw, one file unchanged."""

import gzip
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlencode

from remuda.lib.safe_paths import open_inside
from remuda.stdsteps.checkout.workdir import make_temporary
from remuda.stdsteps.common.archive import write_zip
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.file_selection import leads_inside, select
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import write_outputs
from remuda.stdsteps.common.transfer import HttpError, request, with_retries
from remuda.stdsteps.signatures.statements import SUFFIX

FORMATS = ("zip", "gzip", "raw")
SUFFIXES = {"zip": ".zip", "gzip": ".gz", "raw": ""}
WHEN = ("always", "on_success", "on_failure")
BOUNDARY = "remuda-artifacts-7d1c5b0e8f2a4963"
_CHUNK = 256 * 1024


def run(inputs: Inputs) -> None:
    api_url, job_id, token = inputs.text("api_url").rstrip("/"), inputs.number("job_id", 0), inputs.text("token")
    paths, exclude = inputs.texts("paths", []), inputs.texts("exclude", [])
    untracked, name = inputs.flag("untracked", False), inputs.text("name", "")
    statement = inputs.text("statement", "")
    when = inputs.one_of("when", WHEN)
    query = {
        "artifact_format": inputs.one_of("artifact_format", FORMATS),
        "artifact_type": inputs.text("artifact_type", "archive"),
        "expire_in": inputs.text("expire_in", ""),
    }
    inputs.done()
    if not is_due(when, os.environ.get("CI_JOB_STATUS", "running")):
        return
    root = Path.cwd()
    names = select(root, paths, exclude, untracked=untracked)
    if query["artifact_format"] != "zip":
        names = {name for name in names if (root / name).is_file() and leads_inside(root, name)}
    if not names:
        say("WARNING: No files to upload")
        write_outputs(files=0, bytes=0)
        return
    if statement:
        # The signed statement is uploaded even if the job's patterns exclude it.
        names |= {own for own in (statement, statement + SUFFIX) if (root / own).is_file()}
    with make_temporary("remuda-artifacts-") as folder:
        archive = Path(folder) / "artifacts"
        build(archive, root, names, query["artifact_format"])
        suffix = SUFFIXES[query["artifact_format"]]
        filename = re.sub(r'[/\\"\r\n]', "_", name or "artifacts") + suffix
        url = f"{api_url}/jobs/{job_id}/artifacts?{urlencode({key: value for key, value in query.items() if value})}"
        size = archive.stat().st_size
        say(f"Uploading artifacts as {query['artifact_type']} to server, {size} bytes...")
        with_retries("uploading artifacts", lambda _: upload(url, token, archive, filename))
    say("Uploaded artifacts")
    write_outputs(files=len(names), bytes=size)


def is_due(when: str, job_status: str) -> bool:
    """True if a job with this status and `artifacts:when` (on_success, on_failure, always) uploads its artifacts."""
    good = job_status in ("running", "success")
    return when == "always" or (when == "on_success") == good


def build(output: Path, root: Path, names: Iterable[str], form: str) -> None:
    """Write the files `names` (relative to `root`) to the artifact file `output`, in the form zip, gzip or raw. Raises
    StepError if the form is raw and `names` has not exactly one file."""
    if form == "zip":
        write_zip(output, root, names)
        return
    files = sorted(names)
    if form == "raw":
        if len(files) != 1:
            raise StepError(f"artifact format raw takes exactly one file, not {len(files)}")
        with open(open_inside(root, files[0], follow=True), "rb") as source, output.open("wb") as target:
            shutil.copyfileobj(source, target, _CHUNK)
        return
    with output.open("wb") as packed:
        for name in files:
            with open(open_inside(root, name, follow=True), "rb") as source:
                moment = min(max(int(os.fstat(source.fileno()).st_mtime), 0), 0xFFFFFFFF)
                with gzip.GzipFile(os.path.basename(name), "wb", fileobj=packed, mtime=moment) as part:
                    shutil.copyfileobj(source, part, _CHUNK)


def upload(url: str, token: str, archive: Path, filename: str) -> None:
    """POST an archive, as a file called `filename`, in multipart form data, streamed in chunks. Raises StepError if the
    archive is too large for the server (413), HttpError for other error answers."""

    def body() -> Iterator[bytes]:
        yield (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        with archive.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
        yield f"\r\n--{BOUNDARY}--\r\n".encode()

    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}", "Transfer-Encoding": "chunked"}
    try:
        request("POST", url, token=token, body=body, headers=headers).close()
    except HttpError as error:
        if error.status == 413:
            size = archive.stat().st_size
            raise StepError(
                f"the artifacts are too large for this server ({size} bytes): {error}; upload fewer files, or raise "
                "the server's limit"
            ) from None
        raise
