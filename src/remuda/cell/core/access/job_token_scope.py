"""Which projects' jobs a project lets in: its job token allow list.

Decided here: a job of another project needs a place in the list, its project's own or that of a group its project is in
(however far up), unless the project has switched its list off. What everybody of the organization may read, because the
project is not private, jobs may read too. The project itself is always in its list. What the person may who started the
pipeline is asked besides (`remuda.cell.pipelines.cross_project_access`); the list never adds to that.

Pure. Called wherever a job's token reaches another project: git, needs of its artifacts, calls that start its
pipelines. Trigger jobs and included files use no token: the cell acts by the rights of the person who started the
pipeline, as GitLab does.
"""

from remuda.cell.values import Project

MAX_ENTRIES = 200
"""How many projects, and how many groups, a list has at most, as in GitLab."""


def admits(target: Project, source: Project, *, is_reading: bool) -> bool:
    """True if `target` lets jobs of `source` in, to read its code and artifacts or to start its pipelines."""
    return (
        target.id == source.id
        or not target.job_token_scope_enabled
        or (is_reading and target.visibility != "private")
        or source.id in target.job_token_projects
        or not set(target.job_token_groups).isdisjoint(source.group_ids)
    )


def explain_refusal(target: Project, source: Project) -> str:
    """What a job is told that is not let in."""
    return (
        f'the project "{target.path}" does not let in jobs of "{source.path}": a maintainer of {target.path} can add '
        f"project {source.id}, or a group it is in, to its job token allow list (POST "
        f"/api/v4/projects/{target.id}/job_token_scope/allowlist with target_project_id={source.id})"
    )
