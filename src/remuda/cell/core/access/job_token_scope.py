"""The job token allow list of a project: which other projects' jobs may access it with their job tokens. A job is
allowed if its project, or a group above that project, is in the list, or if the list is not used
(`job_token_scope_enabled` is False). Jobs may also read a project that is not private. The list never extends the
rights of the user who started the pipeline; they are checked, too (`remuda.cell.pipelines.cross_project_access`).
Trigger jobs and included files use no token: the cell acts with the rights of the user, as GitLab does."""

from remuda.cell.values import Project

MAX_ENTRIES = 200
"""Most projects, and most groups, in a list, as in GitLab."""


def admits(target: Project, source: Project, *, is_reading: bool) -> bool:
    """Return whether jobs of the project `source` may access the project `target` with their job tokens, by the allow
    list of `target`. `is_reading`: read its code and artifacts; otherwise: start pipelines in it."""
    return (
        target.id == source.id
        or not target.job_token_scope_enabled
        or (is_reading and target.visibility != "private")
        or source.id in target.job_token_projects
        or not set(target.job_token_groups).isdisjoint(source.group_ids)
    )


def explain_refusal(target: Project, source: Project) -> str:
    return (
        f'the project "{target.path}" does not let in jobs of "{source.path}": a maintainer of {target.path} can add '
        f"project {source.id}, or a group it is in, to its job token allow list (POST "
        f"/api/v4/projects/{target.id}/job_token_scope/allowlist with target_project_id={source.id})"
    )
