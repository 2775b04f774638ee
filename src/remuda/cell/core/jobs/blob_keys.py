"""Keys (file paths) of artifacts, logs and LFS objects in the blob storage. A key contains the id of its job or
project, so that files without a database row can be found. A thousand jobs share a folder, so that no folder grows too
large. The key of an artifact or LFS object is stored in its row (keys of older releases have no such folder), that of a
log is computed from the job id."""

import re

from remuda.model.job import JobId, ProjectId

ARTIFACTS = "artifacts"
TRACES = "traces"
LFS = "lfs"
_JOBS_A_FOLDER = 1000
_LFS = re.compile(rf"{LFS}/([0-9]{{1,18}})/[0-9a-f]{{2}}/([0-9a-f]{{64}})-[0-9a-f]+", re.ASCII)


def artifact_key(job_id: JobId, kind: str, upload: str) -> str:
    """Return the key of an artifact file of type `kind`. `upload` is unique, so that no upload overwrites another."""
    return f"{ARTIFACTS}/{job_id // _JOBS_A_FOLDER}/{job_id}/{kind}-{upload}"


def trace_key(job_id: JobId) -> str:
    return f"{TRACES}/{job_id // _JOBS_A_FOLDER}/{job_id}.log"


def lfs_key(project_id: ProjectId, oid: str, upload: str) -> str:
    """Return the key of an LFS object of a project. `upload` is unique, so that no upload overwrites another."""
    return f"{LFS}/{project_id}/{oid[:2]}/{oid}-{upload}"


def lfs_object_of(key: str) -> tuple[ProjectId, str] | None:
    """Return the project and the oid of an LFS object with this key; None if the key is not that of an LFS object."""
    match = _LFS.fullmatch(key)
    return (ProjectId(int(match[1])), match[2]) if match else None


def job_of_artifact(key: str) -> JobId | None:
    return _number(key.rpartition("/")[0].rpartition("/")[2])


def job_of_trace(key: str) -> JobId | None:
    job_id = _number(key.rpartition("/")[2].removesuffix(".log"))
    return job_id if job_id is not None and trace_key(job_id) == key else None


def _number(text: str) -> JobId | None:
    return JobId(int(text)) if text.isascii() and text.isdigit() and len(text) <= 18 else None
