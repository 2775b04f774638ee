"""The calls with which people who are not signed in read public projects, if `web.public_projects` is on.

Every call that somebody with the level reporter may make to read something of a project is in one of the two tables; a
test checks it, so that a new endpoint is closed until somebody decides. Closed is what shows more than code, pipelines
and their results: members, runners, variables, settings and whatever a job was given."""

_P = "/api/v4/projects/{id}"
_R = f"{_P}/repository"
_O = "/api/remuda/v1/projects/{id}"
_J = "/api/remuda/v1/jobs/{job_id}"
PUBLIC_READS = frozenset(
    {
        _P,
        f"{_R}/commits",
        f"{_R}/commits/{{sha}}",
        f"{_R}/commits/{{sha}}/diff",
        f"{_R}/commits/{{sha}}/refs",
        f"{_R}/commits/{{sha}}/sequence",
        f"{_R}/commits/{{sha}}/statuses",
        f"{_R}/commits/{{sha}}/merge_requests",
        f"{_R}/compare",
        f"{_R}/branches",
        f"{_R}/branches/{{branch}}",
        f"{_R}/tags",
        f"{_R}/tags/{{tag}}",
        f"{_R}/tree",
        f"{_R}/files/{{path}}",
        f"{_R}/files/{{path:path}}/raw",
        f"{_P}/merge_requests",
        f"{_P}/merge_requests/{{iid}}",
        f"{_P}/merge_requests/{{iid}}/pipelines",
        f"{_P}/releases",
        f"{_P}/releases/{{tag}}",
        f"{_P}/releases/permalink/latest",
        f"{_P}/environments",
        f"{_P}/environments/{{environment_id}}",
        f"{_P}/deployments",
        f"{_P}/deployments/{{deployment_id}}",
        f"{_P}/deployments/{{deployment_id}}/merge_requests",
        f"{_P}/pipelines",
        f"{_P}/pipelines/latest",
        f"{_P}/pipelines/{{pipeline_id}}",
        f"{_P}/pipelines/{{pipeline_id}}/jobs",
        f"{_P}/pipelines/{{pipeline_id}}/bridges",
        f"{_P}/pipelines/{{pipeline_id}}/test_report",
        f"{_P}/pipelines/{{pipeline_id}}/test_report_summary",
        "/api/remuda/v1/pipelines/{pipeline_id}/progress",
        f"{_P}/jobs",
        f"{_P}/jobs/{{job_id}}",
        f"{_P}/jobs/{{job_id}}/trace",
        f"{_P}/jobs/{{job_id}}/artifacts",
        f"{_P}/jobs/{{job_id}}/artifacts/{{path:path}}",
        f"{_P}/jobs/artifacts/{{ref}}/download",
        f"{_P}/jobs/artifacts/{{ref}}/raw/{{path:path}}",
        f"{_O}/pipelines",
        f"{_O}/pipelines/{{pipeline_id}}/tests",
        f"{_O}/repository/text",
        _J,
        f"{_J}/trace",
        f"{_J}/artifacts/files",
    }
)
CLOSED_READS = frozenset(
    {
        f"{_P}/import",
        f"{_P}/users",
        f"{_P}/members",
        f"{_P}/members/all",
        f"{_P}/members/{{user_id}}",
        f"{_P}/members/all/{{user_id}}",
        f"{_P}/ci/lint",
        f"{_P}/resource_groups",
        f"{_P}/resource_groups/{{key}}",
        f"{_P}/resource_groups/{{key}}/current_job",
        f"{_P}/resource_groups/{{key}}/upcoming_jobs",
        "/api/v4/jobs/{job_id}/artifacts",
        f"{_O}/pipelines/{{pipeline_id}}/artifacts",
        f"{_J}/artifacts/folder",
        f"{_J}/steps",
        f"{_J}/why",
    }
)
