"""The step `artifacts_download`: unpacks the artifacts of earlier jobs into the working directory."""

from functools import partial
from pathlib import Path

from remuda.stdsteps.checkout.workdir import make_temporary
from remuda.stdsteps.common.archive import LARGEST_BYTES, unpack_zip
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import write_outputs
from remuda.stdsteps.common.transfer import request, store, with_retries


def run(inputs: Inputs) -> None:
    api_url = inputs.text("api_url").rstrip("/")
    largest = inputs.number("limit_bytes", LARGEST_BYTES)
    dependencies, shared_token = inputs.groups("dependencies"), inputs.text("token", "")
    inputs.done()
    files = packed = 0
    for dependency in dependencies:
        job_id, name = dependency.number("id", 0), dependency.text("name", "")
        token = dependency.text("token", shared_token or None)
        dependency.text("filename", "")
        dependency.done()
        say(f"Downloading artifacts for {name} ({job_id})...")
        with make_temporary("remuda-artifacts-") as folder:
            archive = Path(folder) / "artifacts"
            what = f"downloading artifacts of job {job_id}"
            url = f"{api_url}/jobs/{job_id}/artifacts"
            size = with_retries(what, partial(download, url, token, archive))
            with archive.open("rb") as file:
                is_zip = file.read(2) == b"PK"
            if not is_zip:
                raise StepError(f"the artifacts of job {job_id} are not a zip archive; only zip can be unpacked")
            count = unpack_zip(archive, Path.cwd(), largest_bytes=largest)
        say(f"Downloaded {size} bytes, unpacked {count} files and folders")
        files, packed = files + count, packed + size
    write_outputs(jobs=len(dependencies), files=files, bytes=packed)


def download(url: str, token: str, target: Path, failures: int) -> int:
    """Download an archive to `target` and return its size in bytes. Only the first attempt (0 `failures` so far) asks
    for a redirect to object storage (`direct_download`); retries download through the server."""
    with request("GET", url if failures else f"{url}?direct_download=true", token=token) as response:
        return store(response, target)
