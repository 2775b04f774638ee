"""Keys of blobs. A key contains the id of its job, so that blobs without a row can be found.

A thousand jobs share a folder, so that no folder grows too large. Keys of artifacts are stored with the artifact, and
old ones lack that folder; keys of traces are computed. Used by the HTTP edge, the trace archive and the upkeep.
"""

from remuda.model.job import JobId

ARTIFACTS = "artifacts"
TRACES = "traces"
_JOBS_A_FOLDER = 1000


def artifact_key(job_id: JobId, kind: str, upload: str) -> str:
    """The key of one uploaded file."""
    return f"{ARTIFACTS}/{job_id // _JOBS_A_FOLDER}/{job_id}/{kind}-{upload}"


def trace_key(job_id: JobId) -> str:
    """The key of an archived trace."""
    return f"{TRACES}/{job_id // _JOBS_A_FOLDER}/{job_id}.log"


def job_of_artifact(key: str) -> JobId | None:
    """The job of the blob of an artifact; None for a key of another form."""
    return _number(key.split("/")[-2])


def job_of_trace(key: str) -> JobId | None:
    """The job of the blob of a trace; None for a key of another form."""
    job_id = _number(key.rpartition("/")[2].removesuffix(".log"))
    return job_id if job_id is not None and trace_key(job_id) == key else None


def _number(text: str) -> JobId | None:
    return JobId(int(text)) if text.isascii() and text.isdigit() and len(text) <= 18 else None
