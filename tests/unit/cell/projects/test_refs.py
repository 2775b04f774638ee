"""Resolution of ref names: which refs a name may mean, and that a branch wins over a tag."""

import pytest

from remuda.cell.projects.refs import candidates, find_ref, merge_request_ref
from remuda.testing.builders import a_project


@pytest.mark.parametrize(
    ("name", "refs"),
    [
        ("main", ("refs/heads/main", "refs/tags/main")),
        ("feature/one", ("refs/heads/feature/one", "refs/tags/feature/one")),
        ("refs/heads/main", ("refs/heads/main",)),
        ("refs/tags/v1", ("refs/tags/v1",)),
        ("refs/merge-requests/7/head", ("refs/merge-requests/7/head",)),
        ("refs/heads/", ()),
        ("refs/heads/../x", ()),
        ("--all", ()),
        ("a b", ()),
        ("", ()),
        ("HEAD", ()),
        ("3f786850e387550fdab836ed7e6dc881de23001b", ()),
    ],
)
def test_refs_that_a_name_may_mean(name: str, refs: tuple[str, ...]) -> None:
    assert candidates(name) == refs


class Repository:
    def __init__(self, **refs: str) -> None:
        self._refs = refs

    async def commit_of(self, repo: str, ref: str) -> str | None:
        return self._refs.get(ref)


async def test_a_branch_comes_before_a_tag() -> None:
    repository = Repository(**{"refs/heads/v1": "a", "refs/tags/v1": "b", merge_request_ref(7): "c"})
    assert await find_ref(repository, a_project(), "v1") == ("refs/heads/v1", "a")
    assert await find_ref(repository, a_project(), "refs/tags/v1") == ("refs/tags/v1", "b")
    assert await find_ref(repository, a_project(), merge_request_ref(7)) == ("refs/merge-requests/7/head", "c")
    assert await find_ref(repository, a_project(), "v2") is None
    assert await find_ref(Repository(**{"refs/tags/v1": "b"}), a_project(), "v1") == ("refs/tags/v1", "b")
