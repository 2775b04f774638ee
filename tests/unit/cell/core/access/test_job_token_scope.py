from remuda.cell.core.access.job_token_scope import admits, explain_refusal
from remuda.cell.values import Project
from remuda.model.job import ProjectId
from remuda.testing.builders import a_project

SHOP = a_project(id=ProjectId(7), path="acme/inner/shop", group_ids=(5, 4))


def lib(**changes: object) -> Project:
    return a_project(**{"id": ProjectId(1), "path": "acme/lib", **changes})


def let_in(target: Project) -> tuple[bool, bool]:
    """To read, and to start pipelines."""
    return admits(target, SHOP, is_reading=True), admits(target, SHOP, is_reading=False)


def test_who_is_let_in() -> None:
    assert let_in(SHOP) == (True, True)
    assert let_in(lib()) == (False, False)
    assert let_in(lib(group_ids=(5, 4))) == (False, False), "to be in the same group is not enough"
    assert let_in(lib(job_token_scope_enabled=False)) == (True, True)
    assert let_in(lib(job_token_projects=(3, 7))) == (True, True)
    assert let_in(lib(job_token_projects=(3, 5))) == (False, False)
    assert let_in(lib(job_token_groups=(5,))) == (True, True)
    assert let_in(lib(job_token_groups=(4,))) == (True, True), "a group further up"
    assert let_in(lib(job_token_groups=(7,))) == (False, False)
    assert let_in(lib(visibility="internal")) == (True, False)
    assert let_in(lib(visibility="public")) == (True, False)


def test_a_job_is_told_what_to_do() -> None:
    message = explain_refusal(lib(), SHOP)
    assert '"acme/lib" does not let in jobs of "acme/inner/shop"' in message
    assert "POST /api/v4/projects/1/job_token_scope/allowlist with target_project_id=7" in message
