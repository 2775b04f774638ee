"""What blobs are called: a key tells whose a blob is, so that one to which no row leads can be found out.

A thousand jobs share a folder of keys, so that none grows too large. The keys of artifacts are stored with them, and
some have no such folder; those of traces are only worked out. Pure; the edge, the archive and the upkeep use it.
"""

from remuda.model.job import JobId

ARTIFACTS = "artifacts"
TRACES = "traces"
_JOBS_A_FOLDER = 1000


def artifact_key(job_id: JobId, kind: str, upload: str) -> str:
    """The key of one upload."""
    return f"{ARTIFACTS}/{job_id // _JOBS_A_FOLDER}/{job_id}/{kind}-{upload}"


def trace_key(job_id: JobId) -> str:
    """The key of an archived trace."""
    return f"{TRACES}/{job_id // _JOBS_A_FOLDER}/{job_id}.log"


def job_of_artifact(key: str) -> JobId | None:
    """The job that an artifact is of."""
    return _number(key.split("/")[-2])


def job_of_trace(key: str) -> JobId | None:
    """The job whose trace a blob is."""
    found = _number(key.rpartition("/")[2].removesuffix(".log"))
    return found if found is not None and trace_key(found) == key else None


def _number(text: str) -> JobId | None:
    return JobId(int(text)) if text.isascii() and text.isdigit() and len(text) <= 18 else None
