"""Creates OpenTelemetry spans for jobs and their steps, with OpenTelemetry's attribute names for CI (`cicd.*`).

All jobs of a pipeline belong to one trace, unless a job has a variable TRACEPARENT. Each attempt of a step is a span.
Invariant: the ids of a span are computed from the job and the result. A manager that resumes a job creates spans with
the same ids again, which receivers treat as duplicates."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from remuda import __version__
from remuda.lib.clock import Clock, parse_time
from remuda.manager.core.record import JobRow, Outcome
from remuda.model.job import FailureReason
from remuda.telemetry.logs import logger
from remuda.telemetry.otlp import Counted, SpanExporter
from remuda.telemetry.otlp_settings import OtlpError, hide_password, read_otlp_settings
from remuda.telemetry.spans import SERVER, Context, Span, Value, parse_traceparent, span_id_of, trace_id_of
from remuda.wire.agent_client import JobVariable
from remuda.wire.runner_api import JobPayload

SERVICE = "remuda-manager"
TRACEPARENT = "TRACEPARENT"
_LONGEST_TEXT = 1024
_TYPES = frozenset({"build", "test", "deploy"})
"""OpenTelemetry's task types. A job of another stage has the name of its stage as type."""
_RESULTS = {"success": "success", "cancelled": "cancellation", "skipped": "skip"}
_JOB_RESULTS: Mapping[str, str] = {
    FailureReason.SCRIPT_FAILURE: "failure",
    FailureReason.JOB_CANCELED: "cancellation",
    FailureReason.JOB_EXECUTION_TIMEOUT: "timeout",
}


class _Event(msgspec.Struct, kw_only=True):
    """The fields of a step result for spans, without inputs, outputs and environment: they are large and private."""

    event: str = ""
    path: str = ""
    name: str = ""
    reference: str = ""
    origin: str = ""
    attempt: int = 1
    time: str = ""
    status: str = ""
    exit_code: int | None = None
    error: str | None = None
    error_kind: str | None = None
    fault: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    retried: bool = False
    environment: str | None = None
    resolved: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    usage: dict[str, Any] = {}


class JobSpans:
    """Creates the spans of one job and its steps, and passes each to `offer`, which sends it, when it ends."""

    def __init__(self, row: JobRow, payload: JobPayload, *, offer: Callable[[Span], None]) -> None:
        self.next_seq = 1
        """Sequence number of the next step result that is needed."""
        self._offer = offer
        self._key = row.key
        self._job_id = row.job_id
        self._began = row.received_at
        variables = {variable.key: variable.value for variable in payload.variables}
        parent = parse_traceparent(variables.get(TRACEPARENT, ""))
        self.is_wanted = parent is None or parent.is_sampled
        self._parent_id = parent.span_id if parent else ""
        info = payload.job_info
        # Local runs all start with pipeline 1, perhaps at the same address.
        pipeline = (row.url, info.pipeline_id or row.key, variables.get("CI_PIPELINE_CREATED_AT", ""))
        self.context = Context(
            trace_id=parent.trace_id if parent else trace_id_of("pipeline", *pipeline),
            span_id=span_id_of("job", row.url, row.key),
        )
        self._name = info.name or f"job {row.job_id}"
        self._attributes = _job_attributes(row, payload, variables)
        self._open: dict[str, str] = {}
        """Span ids of running steps, by path."""

    def with_traceparent(self, variables: Sequence[JobVariable]) -> list[JobVariable]:
        """Return the variables with TRACEPARENT set, so that spans of the job's processes are children of its span."""
        if not self.is_wanted:
            return list(variables)
        own = JobVariable(key=TRACEPARENT, value=self.context.traceparent)
        return [*(variable for variable in variables if variable.key != TRACEPARENT), own]

    def on_result(self, seq: int, document: bytes) -> None:
        """Create a span when a step has finished. Repeated or unreadable results are ignored."""
        if seq != self.next_seq:
            return
        self.next_seq += 1
        try:
            event = msgspec.json.decode(document, type=_Event)
        except msgspec.MsgspecError:
            return
        if event.event == "started":
            self._open[event.path] = self._id_of(event, event.time)
        elif event.event == "finished" and self.is_wanted and event.status != "skipped":
            ended_at = parse_time(event.finished_at or event.time)
            if ended_at is not None:
                self._offer(self._step(event, ended_at))
        if event.event == "finished" and not event.retried:
            self._open.pop(event.path, None)

    def end(self, outcome: Outcome | None, now: float) -> None:
        """Create the span of the job, which is over. `outcome` is None if the manager gave the job up before its end
        was known, for example because the server canceled it."""
        if not self.is_wanted:
            return
        failed = outcome is None or outcome.state == "failed"
        reason = outcome.reason if outcome is not None else str(FailureReason.JOB_CANCELED)
        result = _JOB_RESULTS.get(reason, "error") if failed else "success"
        attributes: dict[str, Value] = {"cicd.pipeline.result": result, "cicd.pipeline.task.run.result": result}
        if failed:
            attributes["error.type"] = reason or "_OTHER"
        if outcome is not None:
            attributes["process.exit.code"] = outcome.exit_code
        message = (outcome.message if outcome is not None else "") or reason
        self._offer(
            Span(
                trace_id=self.context.trace_id,
                span_id=self.context.span_id,
                parent_id=self._parent_id,
                name=self._name,
                kind=SERVER,
                started_at=self._began,
                ended_at=now,
                attributes={**self._attributes, **attributes},
                error=message[:_LONGEST_TEXT] if failed else None,
            )
        )

    def _step(self, event: _Event, ended_at: float) -> Span:
        started_at = parse_time(event.started_at)
        return Span(
            trace_id=self.context.trace_id,
            span_id=self._id_of(event, event.started_at or event.time),
            parent_id=self._parent_of(event.path),
            name=event.name.removeprefix("+") or event.path,
            started_at=ended_at if started_at is None else started_at,
            ended_at=ended_at,
            attributes=_step_attributes(event)
            | {"cicd.pipeline.task.run.id": f"{self._job_id}{event.path}#{event.attempt}"},
            error=(event.error or event.status)[:_LONGEST_TEXT] if event.status == "failure" else None,
        )

    def _id_of(self, event: _Event, began: str) -> str:
        return span_id_of("step", self._key, event.path, event.attempt, began)

    def _parent_of(self, path: str) -> str:
        """Return the span id of the nearest running step around the step `path`, or the job's if there is none."""
        while path:
            path = path.rpartition("/")[0]
            if span_id := self._open.get(path):
                return span_id
        return self.context.span_id


def _job_attributes(row: JobRow, payload: JobPayload, variables: Mapping[str, str]) -> dict[str, Value]:
    info = payload.job_info
    kind = "deploy" if variables.get("CI_ENVIRONMENT_NAME") else info.stage
    attributes = {
        "cicd.pipeline.name": variables.get("CI_PIPELINE_NAME") or info.project_full_path or info.project_name,
        "cicd.pipeline.run.id": str(info.pipeline_id or ""),
        "cicd.pipeline.run.url.full": variables.get("CI_PIPELINE_URL", ""),
        "cicd.pipeline.task.name": info.name,
        "cicd.pipeline.task.run.id": str(row.job_id),
        "cicd.pipeline.task.run.url.full": variables.get("CI_JOB_URL", ""),
        "cicd.pipeline.task.type": kind.lower() if kind.lower() in _TYPES else kind,
        "cicd.worker.id": variables.get("CI_RUNNER_ID") or row.runner,
        "cicd.worker.name": row.runner_name,
        "vcs.ref.head.name": payload.git_info.ref,
        "vcs.ref.head.revision": payload.git_info.sha,
    }
    return {name: value for name, value in attributes.items() if value}


def _step_attributes(event: _Event) -> dict[str, Value]:
    attributes: dict[str, Any] = {
        "cicd.pipeline.task.name": event.name,
        "cicd.pipeline.task.run.result": _result(event),
        "error.type": (event.error_kind or "_OTHER") if event.status == "failure" else None,
        "process.exit.code": event.exit_code,
        "remuda.step.path": event.path,
        "remuda.step.reference": event.resolved.get("reference") or event.reference,
        "remuda.step.digest": event.resolved.get("digest"),
        "remuda.step.commit": event.resolved.get("commit"),
        "remuda.step.version": event.resolved.get("version"),
        "remuda.step.origin": event.origin,
        "remuda.step.attempt": event.attempt,
        "remuda.step.fault": event.fault,
        "remuda.step.environment": event.environment,
        "remuda.step.policy.decision": event.policy.get("decision"),
        "remuda.step.policy.rule": event.policy.get("rule"),
        "remuda.step.policy.enforced": event.policy.get("enforced"),
        "remuda.step.policy.advisory": event.policy.get("advisory"),
    }
    attributes |= {
        f"remuda.step.{name}": value for name, value in event.usage.items() if isinstance(value, int | float)
    }
    return {name: value for name, value in attributes.items() if _is_value(value)}


def _is_value(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, str) for item in value)
    return isinstance(value, str | int | float) and value != ""


def _result(event: _Event) -> str:
    if event.status != "failure":
        return _RESULTS.get(event.status, "error")
    if event.error_kind == "timeout":
        return "timeout"
    return "failure" if event.fault in (None, "user") else "error"


def find_exporter(environment: Mapping[str, str], clock: Clock, count: Counted, *, own_id: str) -> SpanExporter | None:
    """Return the exporter for spans that the variables in `environment` configure; None if they are invalid (logged).
    `own_id` is the manager's system id; `count` gets what happened to spans, such as sent, and how many."""
    try:
        settings = read_otlp_settings(environment, service=SERVICE)
        resource = {"service.version": __version__, "service.instance.id": own_id, **settings.resource}
        exporter = SpanExporter(msgspec.structs.replace(settings, resource=resource), clock, count)
    except OtlpError as error:
        logger("manager").warning("invalid OpenTelemetry settings; no spans are sent", cause=str(error))
        return None
    logger("manager").info("sending OpenTelemetry spans of jobs", to=hide_password(settings.url))
    return exporter
