"""Scopes of registry tokens, and the access that a user or a job gets."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.access import registry_images
from remuda.cell.core.access.registry_images import actions_of, limit_access, parse_scopes, project_paths
from remuda.wire.registry_token import Access


def test_parsing_of_scopes() -> None:
    assert parse_scopes(["repository:acme/shop:pull,push,pull"]) == [Access(name="acme/shop", actions=("pull", "push"))]
    assert parse_scopes(["repository:a/b:pull repository:a/c:push"]) == [
        Access(name="a/b", actions=("pull",)),
        Access(name="a/c", actions=("push",)),
    ]
    for invalid in (
        "",
        "repository",
        "repository:a/b",
        "registry:catalog:*",
        "repository:A/b:pull",
        "repository:a//b:pull",
    ):
        assert parse_scopes([invalid]) == [], invalid
    assert len(parse_scopes(["repository:a/b:pull "] * 100)) == registry_images.MAX_SCOPES


@given(st.text())
def test_any_text_gives_only_valid_names(text: str) -> None:
    assert all(access.name and access.name.isascii() for access in parse_scopes([text, f"repository:{text}:pull"]))


def test_project_paths_of_an_image() -> None:
    assert project_paths("acme/tools/saw") == ["acme/tools/saw", "acme/tools"]
    assert project_paths("acme") == []


def test_actions_by_level_and_scopes() -> None:
    assert actions_of(20, ("api",)) == {"pull"}
    assert actions_of(30, ("api",)) == {"pull", "push", "delete"}
    assert actions_of(30, ("read_registry",)) == {"pull"}
    assert actions_of(30, ("write_registry",)) == {"push"}
    assert actions_of(30, ("read_api", "write_registry")) == {"pull", "push"}
    assert actions_of(50, ("write_repository",)) == actions_of(10, ("api",)) == actions_of(0, ("api",)) == set()


def test_only_requested_actions_are_granted() -> None:
    requested = Access(name="a/b", actions=("pull", "delete"))
    assert limit_access(requested, registry_images.BY_JOB) == Access(name="a/b", actions=("pull",))
    assert limit_access(requested, {"push"}) is None
    assert limit_access(requested, ()) is None
