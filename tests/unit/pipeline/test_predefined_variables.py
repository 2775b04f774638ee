import pytest

from remuda.pipeline.predefined_variables import (
    ASSIGNEES,
    LABELS,
    of_commit,
    of_merge_request,
    of_pages,
    of_project,
    of_server,
)


@pytest.mark.parametrize(
    ("message", "title", "description"),
    [
        ("Fix it", "Fix it", ""),
        ("Fix it\n\nBecause.\nReally.\n", "Fix it", "Because.\nReally."),
        ("x" * 100 + "\n\nBecause.", "x" * 100, "x" * 100 + "\n\nBecause."),
        ("", "", ""),
    ],
)
def test_variables_of_a_commit(message: str, title: str, description: str) -> None:
    values = of_commit(message=message, author="A <a@example.com>", timestamp="1970-01-01T00:00:00.000Z")
    assert (values["CI_COMMIT_TITLE"], values["CI_COMMIT_DESCRIPTION"]) == (title, description)
    assert (values["CI_COMMIT_AUTHOR"], values["CI_COMMIT_TIMESTAMP"]) == (
        "A <a@example.com>",
        "1970-01-01T00:00:00.000Z",
    )
    assert values["CI_COMMIT_MESSAGE_IS_TRUNCATED"] == "false"


def test_a_long_commit_message_is_truncated() -> None:
    values = of_commit(message="ü" * 100_000, author="", timestamp="1970-01-01T00:00:00.000Z")
    assert values["CI_COMMIT_MESSAGE"] == "ü" * 50_000
    assert values["CI_COMMIT_MESSAGE_IS_TRUNCATED"] == "true"


def test_variables_of_a_server() -> None:
    values = of_server("https://ci.example:8443")
    expected = {
        "CI_API_V4_URL": "https://ci.example:8443/api/v4",
        "CI_API_GRAPHQL_URL": "https://ci.example:8443/api/graphql",
        "CI_SERVER_SHELL_SSH_HOST": "ci.example",
        "CI_SERVER_SHELL_SSH_PORT": "22",
        "CI_TEMPLATE_REGISTRY_HOST": "registry.gitlab.com",
        "GITLAB_FEATURES": "",
    }
    assert {name: values[name] for name in expected} == expected


def test_lists_of_a_merge_request_exist_only_if_they_have_entries() -> None:
    project = of_project(path="a/b", url="http://x/a/b", number=1, title="b")
    others = {LABELS: "bug,urgent", ASSIGNEES: ""}
    values = of_merge_request(iid=1, project=project, source="x", target="main", default_branch="main", others=others)
    assert values[LABELS] == "bug,urgent"
    assert ASSIGNEES not in values


@pytest.mark.parametrize(
    ("path", "host", "url"),
    [
        ("Acme/shop", "acme.pages.example", "https://acme.pages.example/shop"),
        ("acme/Web/Shop", "acme.pages.example", "https://acme.pages.example/Web/Shop"),
        ("acme/acme.pages.example", "acme.pages.example", "https://acme.pages.example"),
    ],
)
def test_variables_of_a_site(path: str, host: str, url: str) -> None:
    expected = {"CI_PAGES_DOMAIN": "pages.example", "CI_PAGES_HOSTNAME": host, "CI_PAGES_URL": url}
    assert of_pages("pages.example", path=path, server="https://ci.example") == expected


def test_without_a_domain_there_are_no_sites() -> None:
    assert of_pages("", path="acme/shop", server="https://ci.example") == {}
