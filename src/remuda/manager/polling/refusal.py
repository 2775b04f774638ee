"""Reporting a job that this manager can never run as failed. Used for jobs from requests and from the journal."""

from remuda.model.job import FailureReason
from remuda.telemetry.logs import logger
from remuda.wire.runner_api import TraceOutput
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError


async def refuse_job(client: RunnerClient, job_id: int, token: str) -> None:
    """Tell the server that the job failed, so that it is not handed out again."""
    try:
        await client.update_job(
            job_id,
            token,
            state="failed",
            failure_reason=FailureReason.RUNNER_SYSTEM_FAILURE,
            output=TraceOutput(checksum="crc32:00000000", bytesize=0),
        )
    except RunnerApiTemporaryError as error:
        logger("manager").warning("cannot report a refused job to the server", job=job_id, cause=str(error))
