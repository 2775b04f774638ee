"""Merge requests, of which a cell has none, as clients ask for them."""

import gitlab
import pytest
from tests.support.cells.served_cell import ServedCell


def test_lists_are_empty_and_a_single_one_is_not_found(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("app", "job: {script: [make]}"))
    group = client.groups.create({"name": "acme", "path": "acme"})
    assert client.mergerequests.list(get_all=True, scope="all") == []
    assert group.mergerequests.list(get_all=True, state="opened") == []
    assert project.mergerequests.list(get_all=True, source_branch="main") == []
    assert project.commits.get("main").merge_requests() == []
    with pytest.raises(gitlab.GitlabGetError, match="404"):
        project.mergerequests.get(1)
    assert cell.api("GET", "/projects/1/repository/commits/feed/merge_requests").status == 404
