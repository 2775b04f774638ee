"""Every endpoint that changes something is either audited or listed here as everyday."""

from remuda.cell.http.edge.app import ENDPOINTS
from remuda.cell.http.edge.auditing import ACTIONS

_P = "/api/v4/projects/{id}"
EVERYDAY = {
    ("POST", "/api/v4/runners/verify"),
    ("PUT", "/api/v4/jobs/{job_id}"),
    ("POST", "/api/v4/jobs/{job_id}/artifacts"),
    ("POST", "/api/remuda/v1/jobs/{job_id}/results"),
    ("POST", f"{_P}/jobs/{{job_id}}/artifacts/keep"),
    ("PUT", "/api/remuda/v1/projects/{id}/refs"),
    ("POST", f"{_P}/repository/commits"),
    ("POST", f"{_P}/statuses/{{sha}}"),
    ("POST", f"{_P}/repository/branches"),
    ("DELETE", f"{_P}/repository/branches/{{branch}}"),
    ("POST", f"{_P}/repository/tags"),
    ("DELETE", f"{_P}/repository/tags/{{tag}}"),
    ("POST", f"{_P}/repository/files/{{path}}"),
    ("PUT", f"{_P}/repository/files/{{path}}"),
    ("DELETE", f"{_P}/repository/files/{{path}}"),
    ("POST", f"{_P}/releases"),
    ("PUT", f"{_P}/releases/{{tag}}"),
    ("DELETE", f"{_P}/releases/{{tag}}"),
    ("POST", f"{_P}/pipeline"),
    ("POST", f"{_P}/merge_requests/{{iid}}/pipelines"),
    ("POST", "/api/remuda/v1/projects/{id}/pipelines"),
    ("PUT", f"{_P}/pipelines/{{pipeline_id}}/metadata"),
    ("POST", f"{_P}/pipelines/{{pipeline_id}}/cancel"),
    ("POST", f"{_P}/pipelines/{{pipeline_id}}/retry"),
    ("POST", f"{_P}/pipeline_schedules/{{schedule_id}}/play"),
    ("POST", f"{_P}/trigger/pipeline"),
    ("POST", f"{_P}/ref/{{ref:path}}/trigger/pipeline"),
    ("POST", f"{_P}/ci/lint"),
    ("POST", f"{_P}/jobs/{{job_id}}/cancel"),
    ("POST", f"{_P}/jobs/{{job_id}}/retry"),
    ("POST", f"{_P}/jobs/{{job_id}}/play"),
    ("POST", f"{_P}/jobs/{{job_id}}/unschedule"),
    ("PUT", "/api/remuda/v1/jobs/{job_id}"),
    # The opening of a shell is audited, its input is not.
    ("PATCH", "/api/remuda/v1/jobs/{job_id}/shells/{shell}/input"),
    ("DELETE", "/api/remuda/v1/jobs/{job_id}/shells/{shell}"),
    ("POST", "/api/remuda/v1/runners/wanted"),
    ("POST", "/api/remuda/v1/runners/problem"),
    ("PATCH", "/api/remuda/v1/runners/shells/{shell}/output"),
    ("DELETE", "/api/remuda/v1/runners/shells/{shell}"),
}
"""Frequent calls of users and runners; they are not audited because they leave pipelines, jobs or commits."""


def test_every_change_is_audited_or_everyday() -> None:
    changing = {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS if endpoint.method not in ("GET", "HEAD")}
    assert changing - EVERYDAY == set(ACTIONS)
    assert changing >= EVERYDAY
