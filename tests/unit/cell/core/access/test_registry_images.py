from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.access import registry_images
from remuda.cell.core.access.registry_images import allowed, granted, project_paths, wanted
from remuda.wire.registry_token import Access


def test_what_a_scope_asks_for() -> None:
    assert wanted(["repository:acme/shop:pull,push,pull"]) == [Access(name="acme/shop", actions=("pull", "push"))]
    assert wanted(["repository:a/b:pull repository:a/c:push"]) == [
        Access(name="a/b", actions=("pull",)),
        Access(name="a/c", actions=("push",)),
    ]
    for odd in (
        "",
        "repository",
        "repository:a/b",
        "registry:catalog:*",
        "repository:A/b:pull",
        "repository:a//b:pull",
    ):
        assert wanted([odd]) == [], odd
    assert len(wanted(["repository:a/b:pull "] * 100)) == registry_images.MAX_SCOPES


@given(st.text())
def test_nonsense_asks_for_nothing(text: str) -> None:
    assert all(one.name and one.name.isascii() for one in wanted([text, f"repository:{text}:pull"]))


def test_the_project_of_an_image() -> None:
    assert project_paths("acme/tools/saw") == ["acme/tools/saw", "acme/tools"]
    assert project_paths("acme") == []


def test_level_and_scopes_decide_together() -> None:
    assert allowed(20, ("api",)) == {"pull"}
    assert allowed(30, ("api",)) == {"pull", "push", "delete"}
    assert allowed(30, ("read_registry",)) == {"pull"}
    assert allowed(30, ("write_registry",)) == {"push"}
    assert allowed(30, ("read_api", "write_registry")) == {"pull", "push"}
    assert allowed(50, ("write_repository",)) == allowed(10, ("api",)) == allowed(0, ("api",)) == set()


def test_no_more_is_granted_than_is_asked_for() -> None:
    asked = Access(name="a/b", actions=("pull", "delete"))
    assert granted(asked, registry_images.BY_JOB) == Access(name="a/b", actions=("pull",))
    assert granted(asked, {"push"}) is None
    assert granted(asked, ()) is None
