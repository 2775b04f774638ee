"""Decides who may set variables of a pipeline or job that they start. The setting of the project names a role; with
`restrict_user_defined_variables` and no higher role, it is the maintainer, as in older releases of GitLab."""

from remuda.cell.values import Project
from remuda.cell.values.people import Level

NO_ONE = "no_one_allowed"
ROLES = (NO_ONE, "developer", "maintainer", "owner")
_LEVELS = {"developer": Level.DEVELOPER, "maintainer": Level.MAINTAINER, "owner": Level.OWNER}


def can_set_variables(project: Project, level: int) -> bool:
    """Return whether a user with this access level in the project may give variables to a pipeline or job."""
    role = project.ci_pipeline_variables_minimum_override_role
    if role == NO_ONE:
        return False
    least = _LEVELS[role]
    if project.restrict_user_defined_variables:
        least = max(least, Level.MAINTAINER)
    return level >= least


def explain_refusal(project: Project) -> str:
    return (
        "Insufficient permissions to set pipeline variables: the project's settings "
        "ci_pipeline_variables_minimum_override_role "
        f"({project.ci_pipeline_variables_minimum_override_role}) and restrict_user_defined_variables decide who may"
    )
