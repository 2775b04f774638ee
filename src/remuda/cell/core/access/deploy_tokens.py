"""Decides what a deploy token may do: fetch from repositories, pull and push images, in its project or group."""

from collections.abc import Collection

from remuda.cell.core.access.registry_images import PULL, PUSH
from remuda.cell.values import Project
from remuda.cell.values.hooks import DeployToken

PREFIX = "gldt-"
CI_NAME = "gitlab-deploy-token"
"""Jobs of a project get its token of this name, as CI_DEPLOY_USER and CI_DEPLOY_PASSWORD."""
SCOPES = ("read_repository", "read_registry", "write_registry")
"""Scopes that have an effect."""
NO_EFFECT = ("read_package_registry", "write_package_registry", "read_virtual_registry", "write_virtual_registry")
"""GitLab's scopes for package registries, which a cell does not have."""


def is_for(token: DeployToken, project: Project) -> bool:
    """Return whether the project is the token's own, or in its group."""
    kind, number = token.owner
    return number == project.id if kind == "project" else number in project.group_ids


def can_fetch(token: DeployToken, project: Project, now: float) -> bool:
    return token.is_active(now) and is_for(token, project) and "read_repository" in token.scopes


def registry_actions(token: DeployToken, project: Project, now: float) -> Collection[str]:
    """Return what the token may do with the images of a project."""
    if not token.is_active(now) or not is_for(token, project):
        return ()
    scopes = {PULL: "read_registry", PUSH: "write_registry"}
    return [action for action, scope in scopes.items() if scope in token.scopes]
