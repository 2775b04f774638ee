"""Kill points: named lines in the code at which a test can kill a process with SIGKILL.

The process kills itself at the line that REMUDA_KILL_POINT names, when it is reached for the REMUDA_KILL_AFTER-th time.
Before that it creates the file REMUDA_KILL_MARK; a process that finds this file does not kill itself. `POINTS` lists
every name with the state at that line; `QUIET_POINTS` are lines that an ordinary job does not reach."""

import os
import signal

POINTS: dict[str, str] = {
    "cell.leased": "the lease is stored, the answer with the job is not sent",
    "cell.acknowledged": "running is stored, the answer is not sent",
    "cell.trace_appended": "trace bytes are stored, the answer is not sent",
    "cell.result_stored": "step results are stored, the answer is not sent",
    "cell.artifact_stored": "an artifact is stored, the answer is not sent",
    "cell.finished": "the final state is stored, the answer is not sent",
    "cell.ref_updated": "git has the new commit, the pipeline is not created",
    "manager.received": "a job came in, nothing is journaled",
    "manager.journaled": "the job is journaled, not acknowledged",
    "manager.acknowledged": "the cell confirmed, the agent knows nothing",
    "manager.started": "the agent accepted the job",
    "manager.trace_sent": "the cell took trace bytes, the journal does not know",
    "manager.result_sent": "the cell took results, the agent does not know",
    "manager.finished": "the cell has the final state, the agent still keeps the job",
    "manager.closed": "the agent forgot the job, the journal did not",
    "agent.accepted": "the request is stored, the answer is not sent",
    "agent.step_found": "the definition of a step is loaded, it is not stored that the step begins",
    "agent.step_prepared": "the step's folder is written, no process started",
    "agent.step_spawned": "the step's process runs, nobody waits for it yet",
    "agent.log_appended": "log bytes are written, their offset is not recorded",
    "agent.log_recorded": "the offset is recorded, nobody was told",
    "agent.step_exited": "the step's process ended, no result is stored",
    "agent.result_stored": "a step's result is stored, nobody was told",
    "agent.job_ended": "the job's end is stored, nobody was told",
}

QUIET_POINTS: dict[str, str] = {
    "agent.outputs_stored": "the outputs of the job's own definition are stored, the job's end is not",
    "manager.acquired": "the job has a machine, the journal does not know which",
    "manager.found": "a job that only its agent knew is journaled, the server has not been asked about it",
    "manager.held": "the cell has the final state of a job on hold, the journal does not know it",
    "agent.put_off": "it is stored that a step of a job on hold runs later, not that it is skipped now",
    "agent.held": "a job has ended and is on hold, nobody waits yet for the end of the hold",
    "cell.trace_sealed": "the trace of a finished job is durable, not archived",
    "cell.trace_archived": "the trace of a finished job is archived, even if the job was erased meanwhile",
    "cell.artifacts_expired": "artifacts are gone from the store, their blobs are still there",
    "cell.lfs_object_received": "the file of an LFS object is stored, its row is not",
    "cell.lfs_object_stored": "an LFS object is stored, the answer is not sent",
    "cell.lfs_object_removed": "the row of an LFS object is gone, its file is still there",
    "cell.webhook_sent": "a receiver got the request of a webhook, its result is not stored",
    "cell.job_erased": "a job is erased in the store, its trace and its artifacts' blobs are still there",
}

_armed = os.environ.get("REMUDA_KILL_POINT", "")
if _armed and _armed not in POINTS and _armed not in QUIET_POINTS:
    raise SystemExit(f"REMUDA_KILL_POINT: unknown kill point {_armed!r}; known: {', '.join([*POINTS, *QUIET_POINTS])}")


_passed = 0


def reach(name: str) -> None:
    global _passed
    if _armed != name:
        return
    _passed += 1
    if _passed < int(os.environ.get("REMUDA_KILL_AFTER", "1")):
        return
    mark = os.environ.get("REMUDA_KILL_MARK")
    if mark:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)
