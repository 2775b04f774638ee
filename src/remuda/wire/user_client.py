"""Client of the API for people and scripts: GitLab's `/api/v4` and Remuda's own `/api/remuda/v1`.

Each method returns a decoded value, or raises an error that names the cause and the fix. One client serves one cell;
calls may overlap."""

import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from remuda.lib.connection_errors import Explanation, Fault, explain, is_https_notice, needs_tls
from remuda.wire.http_session import Answer, HttpSession, environment_proxy
from remuda.wire.loopback_http import CannotConnectError
from remuda.wire.user_api import LintInfo, MistakeInfo, NewPipelineRequest, PipelineProgress

PAGE_SIZE = 100
NAMESPACE = "root"
"""Namespace of projects that are given without one."""
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
"""Longest pause of the cell within an answer."""
_ADVICE = {
    Fault.REFUSED: "start it with `remuda up`, or name another one with --url or REMUDA_URL",
    Fault.UNKNOWN_NAME: "check the address in --url or REMUDA_URL, and the name servers of this machine",
}

_T = TypeVar("_T")


class UserApiError(Exception):
    """The cell could not be reached, did not answer correctly, or (RefusedError) refused the request."""


class UnreachableError(UserApiError):
    """There is no connection to the cell, so it did not get the request."""


class RefusedError(UserApiError):
    """The cell refused the request: wrong token, unknown id, or an invalid request."""

    def __init__(self, message: str, status: int, mistakes: Sequence[MistakeInfo] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.mistakes = mistakes
        """Mistakes of the pipeline file, if they caused the refusal."""


class ProjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    path_with_namespace: str
    http_url_to_repo: str


class PipelineInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    project_id: int
    status: str
    sha: str
    ref: str
    source: str = ""
    name: str | None = None
    web_url: str = ""
    yaml_errors: str | None = None


class ArtifactsFile(msgspec.Struct, frozen=True, kw_only=True):
    filename: str
    size: int = 0


class ArtifactInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact of a job: its archive, a report or its log."""

    file_type: str
    filename: str
    size: int = 0


class NewRunner(msgspec.Struct, frozen=True, kw_only=True):
    """Id and token of a new runner. The cell returns the token only once."""

    id: int
    token: str


class PipelineOfJob(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    project_id: int


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    stage: str
    status: str
    ref: str = ""
    allow_failure: bool = False
    created_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    duration: float | None = None
    queued_duration: float | None = None
    failure_reason: str | None = None
    exit_code: int | None = None
    artifacts_file: ArtifactsFile | None = None
    artifacts: tuple[ArtifactInfo, ...] = ()
    coverage: float | None = None
    pipeline: PipelineOfJob
    downstream_pipeline: PipelineInfo | None = None
    """The pipeline that a trigger job started."""


class TracePart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a job's log with the status of the job; if the status is final, the log is complete. Also used for a
    part of a shell's output, with the state of the shell."""

    data: bytes
    state: str


class EventInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A changed job, pipeline or runner. Kind `reset`: others may be lost; `heartbeat`: no change, `data` is empty."""

    id: str
    """Id of the event, from which a client can continue after a reconnect."""
    kind: str
    data: dict[str, Any]
    """A JobEvent, PipelineEvent, RunnerEvent or ResetEvent of `remuda.wire.user_api`."""


class UserClient:
    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._session: HttpSession | None = None
        self._proxy: str | None = None

    async def __aenter__(self) -> Self:
        with suppress(ValueError):  # the first call reports an invalid address
            self._proxy = environment_proxy(self.url)
        self._session = await HttpSession({"PRIVATE-TOKEN": self._token}, connect_seconds=CONNECT_SECONDS).__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.__aexit__(kind, error, trace)

    async def call(self, method: str, path: str, body: object | None = None, **query: str | int) -> Any:
        async with self._request(method, path, body, query) as answer:
            return _decode(self.url, await answer.read())

    async def pages(self, path: str, *, limit: int | None = None, **query: str | int) -> list[Any]:
        """The entries of a paginated list from all its pages; at most `limit`, if it is set."""
        entries: list[Any] = []
        for page in itertools.count(1):
            part = await self.call("GET", path, None, page=page, per_page=PAGE_SIZE, **query)
            entries.extend(part)
            if len(part) < PAGE_SIZE or (limit is not None and len(entries) >= limit):
                break
        return entries[:limit]

    async def ensure_project(self, path: str, *, default_branch: str) -> ProjectInfo:
        """The project with this path; created if it does not exist. A name without `/` is in the namespace `root`."""
        path = path if "/" in path else f"{NAMESPACE}/{path}"
        try:
            project = await self.call("GET", f"/api/v4/projects/{quote(path, safe='')}")
        except RefusedError as error:
            if error.status != 404:
                raise
            body = {"name": path.rpartition("/")[2], "path": path, "default_branch": default_branch}
            project = await self.call("POST", "/api/v4/projects", body)
        return _convert(project, ProjectInfo)

    async def allow_force_pushes(self, project_id: int) -> None:
        root = f"/api/v4/projects/{project_id}/protected_branches"
        for branch in await self.call("GET", root):
            await self.call("PATCH", f"{root}/{quote(branch['name'], safe='')}", {"allow_force_push": True})

    async def let_in_all_jobs(self, project_id: int) -> None:
        """Disable a project's job token allow list: jobs of all projects get access, within their users' rights."""
        await self.call("PATCH", f"/api/v4/projects/{project_id}/job_token_scope", {"enabled": False})

    async def put_refs(self, project_id: int, refs: Mapping[str, str]) -> None:
        """Set refs (`refs/heads/main`) to ids of commits that the repository already has."""
        await self.call("PUT", f"/api/remuda/v1/projects/{project_id}/refs", {"refs": dict(refs)})

    async def add_instance_runner(self, description: str, *, tags: Sequence[str] = ()) -> NewRunner:
        """Create an instance runner, which serves all projects, and return its id and token."""
        body = {
            "runner_type": "instance_type",
            "description": description,
            "run_untagged": True,
            "tag_list": list(tags),
        }
        return _convert(await self.call("POST", "/api/v4/user/runners", body), NewRunner)

    async def list_runner_tags(self, runner_id: int) -> list[str]:
        answer = await self.call("GET", f"/api/v4/runners/{runner_id}")
        return [str(tag) for tag in answer["tag_list"]]

    async def tag_runner(self, runner_id: int, tags: Sequence[str]) -> None:
        await self.call("PUT", f"/api/v4/runners/{runner_id}", {"tag_list": list(tags)})

    async def create_pipeline(self, project_id: int, request: NewPipelineRequest) -> PipelineInfo:
        """Create a pipeline. Raises RefusedError, which says why, if the file has mistakes or no job would run."""
        body = msgspec.to_builtins(request)
        return _convert(await self.call("POST", f"/api/remuda/v1/projects/{project_id}/pipelines", body), PipelineInfo)

    async def lint(
        self, project_id: int, text: str, *, ref: str = "", dry_run: bool = False, include_jobs: bool = False
    ) -> LintInfo:
        """Check a pipeline file, and the files that it includes at `ref`. `dry_run`: it is an error, not a warning, if
        no pipeline would start; `include_jobs`: also return the jobs."""
        body = {"content": text, "dry_run": dry_run, "include_jobs": include_jobs} | ({"ref": ref} if ref else {})
        return _convert(await self.call("POST", f"/api/v4/projects/{project_id}/ci/lint", body), LintInfo)

    async def pipelines(self, project_id: int) -> list[PipelineInfo]:
        """Return the first page of a project's pipelines, newest first."""
        return _convert(await self.call("GET", f"/api/v4/projects/{project_id}/pipelines"), list[PipelineInfo])

    async def pipeline(self, project_id: int, pipeline_id: int) -> PipelineInfo:
        path = f"/api/v4/projects/{project_id}/pipelines/{pipeline_id}"
        return _convert(await self.call("GET", path), PipelineInfo)

    async def pipeline_jobs(self, project_id: int, pipeline_id: int) -> list[JobInfo]:
        """Return the latest attempt of each job of a pipeline."""
        path = f"/api/v4/projects/{project_id}/pipelines/{pipeline_id}/jobs"
        return _convert(await self.pages(path), list[JobInfo])

    async def pipeline_bridges(self, project_id: int, pipeline_id: int) -> list[JobInfo]:
        """Return the latest attempt of each trigger job of a pipeline, with the pipeline that it started."""
        path = f"/api/v4/projects/{project_id}/pipelines/{pipeline_id}/bridges"
        return _convert(await self.pages(path), list[JobInfo])

    async def play(self, project_id: int, job_id: int, variables: Mapping[str, str] | None = None) -> JobInfo:
        """Start a manual job, with variables for this run."""
        attributes = [{"key": key, "value": value} for key, value in (variables or {}).items()]
        path = f"/api/v4/projects/{project_id}/jobs/{job_id}/play"
        return _convert(await self.call("POST", path, {"job_variables_attributes": attributes}), JobInfo)

    async def progress(self, pipeline_id: int, details: str = "none") -> PipelineProgress:
        """A pipeline with its jobs and the pipelines that they started. `details`: of which jobs the steps are included
        (none, running or all)."""
        path = f"/api/remuda/v1/pipelines/{pipeline_id}/progress"
        async with self._request("GET", path, None, {"details": details}) as answer:
            try:
                return msgspec.json.decode(await answer.read(), type=PipelineProgress)
            except msgspec.DecodeError as error:
                raise _unreadable_answer(error) from None

    async def create_sign_in_link(self) -> str:
        """Return an address that signs the user in to the web pages of the cell, once and within 15 minutes."""
        return str((await self.call("POST", "/api/remuda/v1/sign_in_links"))["url"])

    async def cancel_pipeline(self, project_id: int, pipeline_id: int) -> None:
        await self.call("POST", f"/api/v4/projects/{project_id}/pipelines/{pipeline_id}/cancel")

    async def steps(self, job_id: int) -> Sequence[Any]:
        results: list[Any] = []
        after: int | None = 0
        while after is not None:
            answer = await self.call("GET", f"/api/remuda/v1/jobs/{job_id}/steps", after=after)
            results += answer["results"]
            # A cell of an earlier version returns all results at once.
            after = answer.get("next_after")
        return results

    async def why(self, job_id: int) -> Any:
        """Why a job waits or how it ended, as decoded JSON."""
        return await self.call("GET", f"/api/remuda/v1/jobs/{job_id}/why")

    async def payload(self, job_id: int) -> Any:
        """Return the payload that a runner gets for a job, without secrets, as decoded JSON."""
        return await self.call("GET", f"/api/remuda/v1/jobs/{job_id}/payload")

    async def job(self, job_id: int) -> Any:
        """Return a job by its id, with the duration of its phases, as decoded JSON."""
        return await self.call("GET", f"/api/remuda/v1/jobs/{job_id}")

    async def trace(self, job_id: int, offset: int = 0) -> TracePart:
        """Return the bytes of a job's log from `offset` on, and the status of the job just before they were read."""
        async with self._request("GET", f"/api/remuda/v1/jobs/{job_id}/trace", None, {"offset": offset}) as answer:
            return TracePart(data=await answer.read(), state=answer.headers.get("X-Remuda-Job-State", ""))

    async def shell_output(self, job_id: int, shell: str, offset: int) -> TracePart:
        """Wait for the next bytes of a shell's output, a stream of frames. `offset`: how many were received before."""
        path = f"/api/remuda/v1/jobs/{job_id}/shells/{shell}/output"
        async with self._request("GET", path, None, {"offset": offset}) as answer:
            return TracePart(data=await answer.read(), state=answer.headers.get("X-Remuda-Shell-State", ""))

    async def shell_input(self, job_id: int, shell: str, start: int, data: bytes) -> None:
        """Send bytes of a shell's input, a stream of frames. `start`: offset of `data` in it. Safe to repeat."""
        path = f"/api/remuda/v1/jobs/{job_id}/shells/{shell}/input"
        headers = {"Content-Range": f"{start}-{start + len(data) - 1}"}
        async with self._request("PATCH", path, data, {}, headers) as answer:
            await answer.read()

    async def events(self, *, after: str = "", **filters: str | int) -> AsyncGenerator[EventInfo, None]:
        """Yield changes of jobs, pipelines and runners, and heartbeats (the first at once), until the cell closes the
        stream, as after an event of kind `reset`: changes may have been missed, so load everything again. `after`: id
        of the last event or heartbeat. `filters`: by `kind`, `project`, `pipeline` or `job`."""
        headers = {"Last-Event-ID": after} if after else {}
        async with self._request("GET", "/api/remuda/v1/events", None, filters, headers) as answer:
            fields: dict[str, str] = {}
            async for raw in _lines(answer):
                name, _, value = raw.decode().partition(":")
                if raw:
                    fields[name] = value.removeprefix(" ")
                    continue
                if "event" in fields:
                    data = _convert(_decode(self.url, fields.get("data", "").encode()), dict[str, Any])
                    yield EventInfo(id=fields.get("id", ""), kind=fields["event"], data=data)
                elif "id" in fields:
                    yield EventInfo(id=fields["id"], kind="heartbeat", data={})
                fields = {}

    async def artifacts(self, project_id: int, job_id: int, file_type: str = "") -> AsyncIterator[bytes]:
        """Download the artifacts archive of a job, or its artifact of another `file_type`, and yield it in pieces."""
        query = {"file_type": file_type} if file_type else {}
        async for piece in self.download(f"/api/v4/projects/{project_id}/jobs/{job_id}/artifacts", **query):
            yield piece

    async def download(self, path: str, **query: str | int) -> AsyncIterator[bytes]:
        """Yield the body of an answer in pieces."""
        async with self._request("GET", path, None, query) as answer:
            async for piece in answer.content.iter_chunked(1 << 18):
                yield piece

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        body: object | None,
        query: dict[str, str | int],
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Answer]:
        """Send a request and yield the answer, if it is successful. Otherwise raises UserApiError with the cause."""
        if self._session is None:
            raise RuntimeError("use the client as an async context manager: async with UserClient(...) as client")
        # A project's path is encoded already.
        address = self.url + path + (f"?{urlencode(query)}" if query else "")
        headers = dict(headers or {})
        data = None
        if body is not None:
            is_raw = isinstance(body, bytes)
            headers.setdefault("Content-Type", "application/octet-stream" if is_raw else "application/json")
            data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        try:
            async with self._session.request(
                method, address, data=data, headers=headers, proxy=self._proxy, read_seconds=READ_SECONDS
            ) as answer:
                if 300 <= answer.status < 400:
                    target = urlsplit(answer.headers.get("Location", ""))
                    raise RefusedError(
                        f"the cell at {self.url} redirects to {target.scheme}://{target.hostname}, where "
                        "your token is not sent; give that address with --url if it is the right one",
                        answer.status,
                    )
                if answer.status >= 400:
                    refusal = await answer.read()
                    if is_https_notice(answer.status, refusal):
                        raise _unreachable(self.url, needs_tls(self.url))
                    raise _refusal(self.url, path, answer.status, refusal)
                yield answer
        except ValueError:
            raise UserApiError(
                f"{self.url} is not the address of a cell; write it like http://127.0.0.1:8929"
            ) from None
        except CannotConnectError as error:
            reason = explain(error, self.url, proxy=self._proxy, seconds=CONNECT_SECONDS, advice=_ADVICE)
            raise _unreachable(self.url, reason) from error
        except OSError as error:
            reason = explain(error, self.url, seconds=READ_SECONDS)
            if reason.fault in (Fault.NEEDS_TLS, Fault.OTHER):
                raise _unreachable(self.url, reason) from error
            raise UserApiError(f"the cell at {self.url} broke off its answer: {reason}") from error


def _unreachable(url: str, reason: Explanation) -> UnreachableError:
    return UnreachableError(f"cannot reach the cell at {url}: {reason}")


async def _lines(answer: Answer) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in answer.content.iter_chunked(1 << 16):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line


def _refusal(url: str, path: str, status: int, body: bytes) -> UserApiError:
    from remuda.wire.refusals import explain_refusal, reason_of, without_status

    if status == 401:
        return RefusedError(
            f"the cell at {url} does not accept the token; sign in with `remuda login {url}`, or put a valid one into "
            "REMUDA_TOKEN (the administrator's token was printed when the cell first started)",
            status,
        )
    answer = _fields(body)
    reason = without_status(reason_of(answer))
    if status == 429:
        # Not a refusal: a caller that polls continues later.
        return UserApiError(f"the cell at {url} gets too many requests: {reason or 'try again later'}")
    if status >= 500:
        return UserApiError(f"the cell at {url} failed: {reason or status}; its log says why")
    mistakes = _mistakes(body)
    if mistakes:
        return RefusedError(reason_of(answer), status, mistakes)
    return RefusedError(explain_refusal(url, path, status, answer), status)


def _mistakes(body: bytes) -> Sequence[MistakeInfo]:
    """Mistakes of a pipeline file in an error answer; empty if the error has another cause."""
    try:
        return msgspec.convert(_fields(body).get("mistakes", []), tuple[MistakeInfo, ...])
    except msgspec.ValidationError:
        return ()


def _fields(body: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _decode(url: str, body: bytes) -> Any:
    try:
        return msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        raise UserApiError(f"{url} answers, but not as a cell does; is the address right?") from None


def _convert(value: Any, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _unreadable_answer(error) from None


def _unreadable_answer(error: Exception) -> UserApiError:
    return UserApiError(f"the cell's answer is not understood: {error}; do client and cell have the same version?")
