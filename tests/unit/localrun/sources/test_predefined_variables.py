from pathlib import Path

import pytest

from remuda.localrun.sources.predefined_variables import (
    Address,
    address_of,
    of_merge_request,
    of_project,
    read_address,
)


@pytest.mark.parametrize(
    ("origin", "server", "path"),
    [
        ("https://gitlab.example.org/group/shop.git", "https://gitlab.example.org", "group/shop"),
        ("https://ann:secret@gitlab.example.org/group/sub/shop", "https://gitlab.example.org", "group/sub/shop"),
        ("http://localhost:8929/root/shop.git/", "http://localhost:8929", "root/shop"),
        ("git@gitlab.example.org:group/shop.git", "https://gitlab.example.org", "group/shop"),
        ("gitlab.example.org:group/shop", "https://gitlab.example.org", "group/shop"),
        ("ssh://git@gitlab.example.org:2222/group/shop.git", "https://gitlab.example.org", "group/shop"),
    ],
)
def test_a_remote_names_the_project(origin: str, server: str, path: str) -> None:
    assert read_address(origin) == Address(server=server, path=path)


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "/srv/git/shop.git",
        "../shop",
        "file:///srv/git/shop.git",
        "C:/git/shop",
        "https://example.org/",
        "https://example.org/alone",
        "https://example.org:port/a/b",
        "https://[x/a/b",
        "git@example.org:a/$(b)",
    ],
)
def test_other_remotes_name_no_project(origin: str) -> None:
    assert read_address(origin) is None


def test_without_a_remote_the_folder_gives_its_name() -> None:
    assert address_of(None, Path("/home/ann/My shop.git")) == Address(path="root/My-shop")
    assert address_of(None, Path("/")) == Address(path="root/project")


def test_variables_of_the_project() -> None:
    variables = of_project(Address(server="https://example.org:8443", path="Group/sub/shop"))
    expected = {
        "CI_PROJECT_NAME": "shop",
        "CI_PROJECT_NAMESPACE": "Group/sub",
        "CI_PROJECT_ROOT_NAMESPACE": "Group",
        "CI_PROJECT_PATH_SLUG": "group-sub-shop",
        "CI_PROJECT_URL": "https://example.org:8443/Group/sub/shop",
        "CI_PAGES_URL": "https://group.pages.localhost/sub/shop",
        "CI_SERVER_FQDN": "example.org:8443",
        "CI_SERVER_HOST": "example.org",
        "CI_SERVER_PORT": "8443",
        "CI_API_V4_URL": "https://example.org:8443/api/v4",
    }
    assert expected.items() <= variables.items()


def test_a_merge_request_into_a_branch_that_is_not_protected() -> None:
    variables = of_merge_request(
        Address(path="a/b"), source="topic", target="stable", default_branch="main", base="", title="Draft: it"
    )
    assert variables["CI_MERGE_REQUEST_TARGET_BRANCH_PROTECTED"] == "false"
    assert (variables["CI_MERGE_REQUEST_DRAFT"], variables["CI_OPEN_MERGE_REQUESTS"]) == ("true", "a/b!1")
