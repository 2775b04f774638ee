"""Keys (file paths) of artifacts and logs in the blob storage. A key contains the id of its job, so that files without
a database row can be found. A thousand jobs share a folder, so that no folder grows too large. The key of an artifact
is stored in its row (keys of older releases have no such folder), that of a log is computed from the job id."""

from remuda.model.job import JobId

ARTIFACTS = "artifacts"
TRACES = "traces"
_JOBS_A_FOLDER = 1000


def artifact_key(job_id: JobId, kind: str, upload: str) -> str:
    """Return the key of an artifact file of type `kind`. `upload` is unique, so that no upload overwrites another."""
    return f"{ARTIFACTS}/{job_id // _JOBS_A_FOLDER}/{job_id}/{kind}-{upload}"


def trace_key(job_id: JobId) -> str:
    return f"{TRACES}/{job_id // _JOBS_A_FOLDER}/{job_id}.log"


def job_of_artifact(key: str) -> JobId | None:
    return _number(key.rpartition("/")[0].rpartition("/")[2])


def job_of_trace(key: str) -> JobId | None:
    job_id = _number(key.rpartition("/")[2].removesuffix(".log"))
    return job_id if job_id is not None and trace_key(job_id) == key else None


def _number(text: str) -> JobId | None:
    return JobId(int(text)) if text.isascii() and text.isdigit() and len(text) <= 18 else None
