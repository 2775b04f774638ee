"""Which projects a job token may access, and the message of a refusal."""

from remuda.cell.core.access.job_token_scope import admits, explain_refusal
from remuda.cell.values import Project
from remuda.model.job import ProjectId
from remuda.testing.builders import a_project

SHOP = a_project(id=ProjectId(7), path="acme/inner/shop", group_ids=(5, 4))


def library(**changes: object) -> Project:
    return a_project(**{"id": ProjectId(1), "path": "acme/lib", **changes})


def check_access(target: Project) -> tuple[bool, bool]:
    """Return whether jobs of SHOP may read the target, and whether they may start pipelines in it."""
    return admits(target, SHOP, is_reading=True), admits(target, SHOP, is_reading=False)


def test_access_of_another_project() -> None:
    assert check_access(SHOP) == (True, True)
    assert check_access(library()) == (False, False)
    assert check_access(library(group_ids=(5, 4))) == (False, False), "a common group is not enough"
    assert check_access(library(job_token_scope_enabled=False)) == (True, True)
    assert check_access(library(job_token_projects=(3, 7))) == (True, True)
    assert check_access(library(job_token_projects=(3, 5))) == (False, False)
    assert check_access(library(job_token_groups=(5,))) == (True, True)
    assert check_access(library(job_token_groups=(4,))) == (True, True), "the parent group is allowed"
    assert check_access(library(job_token_groups=(7,))) == (False, False)
    assert check_access(library(visibility="internal")) == (True, False)
    assert check_access(library(visibility="public")) == (True, False)


def test_the_refusal_says_how_to_allow_access() -> None:
    message = explain_refusal(library(), SHOP)
    assert '"acme/lib" does not let in jobs of "acme/inner/shop"' in message
    assert "POST /api/v4/projects/1/job_token_scope/allowlist with target_project_id=7" in message
