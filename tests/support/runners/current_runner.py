"""A client that sends the requests of a current gitlab-runner (17.9 and later), with its headers and bodies.

Written from the protocol, not from a recording. Tests decide what it sends, and check the answers.
"""

import secrets
import zlib
from collections.abc import Mapping
from typing import Any

from tests.support.cells.served_cell import Answer, ServedCell

USER_AGENT = "gitlab-runner 18.2.0 (18-2-stable; go1.24.4; linux/amd64)"
SYSTEM_ID = "s_a1b2c3d4e5f6"
_SHELL = ("variables", "shared", "session", "terminal", "native_steps_integration")
_SHELL_LAYER = (
    "artifacts",
    "upload_multiple_artifacts",
    "upload_raw_artifacts",
    "cache",
    "fallback_cache_keys",
    "refspecs",
    "masking",
    "raw_variables",
    "artifacts_exclude",
    "multi_build_steps",
    "vault_secrets",
    "return_exit_code",
)
_NETWORK = (
    "trace_reset",
    "trace_checksum",
    "trace_size",
    "cancelable",
    "cancel_gracefully",
    "two_phase_job_commit",
    "job_inputs",
)
_NOT_OF_A_SHELL = (
    "image",
    "services",
    "proxy",
    "service_variables",
    "service_multiple_aliases",
    "image_executor_opts",
    "service_executor_opts",
)
FEATURES = dict.fromkeys((*_SHELL, *_SHELL_LAYER, *_NETWORK), True) | dict.fromkeys(_NOT_OF_A_SHELL, False)
INFO: dict[str, Any] = {
    "name": "gitlab-runner",
    "version": "18.2.0",
    "revision": "12ab34cd",
    "platform": "linux",
    "architecture": "amd64",
    "executor": "shell",
    "shell": "bash",
    "features": FEATURES,
    "config": {"gpus": ""},
    "labels": {},
}


def checksum_of(log: bytes) -> str:
    """Checksum of a log as a runner sends it."""
    return f"crc32:{zlib.crc32(log):08x}"


class CurrentRunner:
    """One manager of one runner. `lacking` are changes of its features."""

    def __init__(self, cell: ServedCell, token: str, *, system_id: str = SYSTEM_ID, **lacking: bool) -> None:
        self.cell = cell
        self.token = token
        self.system_id = system_id
        self.info = INFO | {"features": FEATURES | lacking}
        self.last_update: str | None = None

    def _call(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> Answer:
        always = {"User_Agent": USER_AGENT, "X_Request_Id": secrets.token_hex(16)}
        return self.cell.send(method, f"/api/v4/{path}", body, **(always | dict(headers)))

    def verify(self) -> Answer:
        """POST /runners/verify, as `register --token glrt-...` does."""
        body = {"token": self.token, "system_id": self.system_id, "info": self.info | {"executor": "", "shell": ""}}
        return self._call("POST", "runners/verify", body, self._runner_headers)

    def unregister(self) -> Answer:
        """DELETE /runners/managers, as a runner with a glrt- token does."""
        body = {"token": self.token, "system_id": self.system_id}
        return self._call("DELETE", "runners/managers", body, {"RUNNER_TOKEN": self.token})

    def reset_token(self) -> Answer:
        """POST /runners/reset_authentication_token, with the token in the body only."""
        headers = {"Accept": "application/json"}
        answer = self._call("POST", "runners/reset_authentication_token", {"token": self.token}, headers)
        if answer.status == 201:
            self.token = answer.json()["token"]
        return answer

    def discover(self) -> Answer:
        """GET /runners/router/discovery."""
        return self._call("GET", "runners/router/discovery", None, self._runner_headers)

    @property
    def _runner_headers(self) -> dict[str, str]:
        return {"RUNNER_TOKEN": self.token, "Accept": "application/json"}

    def request(self, request_id: str = "") -> Answer:
        """POST /jobs/request."""
        body = {"token": self.token, "system_id": self.system_id, "info": self.info}
        if self.last_update is not None:
            body["last_update"] = self.last_update
        headers = self._runner_headers | ({"X_Request_Id": request_id} if request_id else {})
        answer = self._call("POST", "jobs/request", body, headers)
        self.last_update = answer.headers.get("X-GitLab-Last-Update") or self.last_update
        return answer

    def take(self) -> "RunningJob":
        """Request a job, which must be available. It is not acknowledged yet."""
        answer = self.request()
        assert answer.status == 201, answer
        return RunningJob(self, answer.json())


class RunningJob:
    """A job of the runner, with its log."""

    def __init__(self, runner: CurrentRunner, payload: dict[str, Any]) -> None:
        self.runner = runner
        self.payload = payload
        self.id = int(payload["id"])
        self.token = str(payload["token"])
        self.log = b""
        self.sent = 0

    def put(self, state: str, *, with_output: bool = True, **more: Any) -> Answer:
        """PUT /jobs/:id, without Accept, because the runner expects no JSON."""
        body: dict[str, Any] = {"token": self.token, "info": self.runner.info, "state": state, **more}
        if with_output:
            checksum = checksum_of(self.log)
            body |= {"checksum": checksum, "output": {"checksum": checksum, "bytesize": len(self.log)}}
        return self.runner._call("PUT", f"jobs/{self.id}", body, {"JOB_TOKEN": self.token})

    def accept(self) -> Answer:
        """The first PUT after the hand-out, without a checksum."""
        return self.put("running", with_output=False)

    def write(self, text: bytes) -> None:
        """Add text to the log; the next `patch` sends it."""
        self.log += text

    def patch(self) -> Answer:
        """PATCH /jobs/:id/trace with the part of the log that was not sent yet. Content-Range includes both ends."""
        data = self.log[self.sent :]
        headers = {
            "JOB_TOKEN": self.token,
            "Content_Range": f"{self.sent}-{self.sent + len(data) - 1}",
            "Content_Type": "text/plain",
        }
        answer = self.runner._call("PATCH", f"jobs/{self.id}/trace?debug_trace=false", data, headers)
        if answer.status == 202:
            self.sent += len(data)
        elif answer.status == 416:
            self.sent = int(answer.headers["Range"].rpartition("-")[2])
        return answer

    def upload(self, content: bytes) -> Answer:
        """POST /jobs/:id/artifacts: one part, with chunked encoding; format, type and expiry are in the query."""
        boundary = secrets.token_hex(30)
        whole = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="artifacts.zip"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        whole += content + f"\r\n--{boundary}--\r\n".encode()
        pieces = (whole[start : start + 32_768] for start in range(0, len(whole), 32_768))
        headers = {"JOB_TOKEN": self.token, "Content_Type": f"multipart/form-data; boundary={boundary}"}
        path = f"jobs/{self.id}/artifacts?artifact_format=zip&artifact_type=archive&expire_in=1+week"
        return self.runner._call("POST", path, pieces, headers)
