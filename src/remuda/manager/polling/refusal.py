"""Reports a job that this manager cannot run to the server as failed: a received job or one in the journal."""

from remuda.model.job import FailureReason
from remuda.telemetry.logs import logger
from remuda.wire.runner_api import TraceOutput, UpdateJob
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError


async def refuse_job(client: RunnerClient, job_id: int, token: str) -> None:
    """Report a job as failed, so that it is not assigned again. An unreachable server is only logged."""
    try:
        update = UpdateJob(
            state="failed",
            failure_reason=FailureReason.RUNNER_SYSTEM_FAILURE,
            output=TraceOutput(checksum="crc32:00000000", bytesize=0),
        )
        await client.update_job(job_id, token, update)
    except RunnerApiTemporaryError as error:
        logger("manager").warning(
            "cannot report a refused job as failed; it ends at the server's own timeout", job=job_id, cause=str(error)
        )
