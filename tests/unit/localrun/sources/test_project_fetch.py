from pathlib import Path
from typing import Any

import pytest

from remuda.lib.exits import BadInputError
from remuda.localrun.sources.project_fetch import (
    ProjectFetcher,
    read_allowed_projects,
    read_server,
    server_of_origin,
)
from remuda.localrun.sources.repository import Repository
from remuda.pipeline import SourceProblem


@pytest.mark.parametrize(
    ("origin", "host", "url"),
    [
        ("https://git.example/acme/shop.git", "git.example", "https://git.example/acme/ci.git"),
        ("https://ann@git.example:8443/acme/sub/shop", "git.example:8443", "https://ann@git.example:8443/acme/ci.git"),
        ("git@git.example:acme/shop.git", "git.example", "git@git.example:acme/ci.git"),
        ("ssh://git@git.example:2222/acme/shop.git", "git.example", "ssh://git@git.example:2222/acme/ci.git"),
    ],
)
def test_other_projects_have_the_address_of_origin_with_another_path(
    make_repo: Any, origin: str, host: str, url: str
) -> None:
    repo = make_repo()
    repo.git("remote", "add", "origin", origin)
    server = server_of_origin(Repository.at(repo.folder))
    assert server is not None
    assert (server.host, server.url("acme/ci")) == (host, url)


@pytest.mark.parametrize("origin", ["/srv/git/acme/shop.git", "file:///srv/acme/shop", "ext::sh -c id acme/shop"])
def test_an_origin_without_a_server_gives_none(make_repo: Any, origin: str) -> None:
    repo = make_repo()
    repo.git("remote", "add", "origin", origin)
    assert server_of_origin(Repository.at(repo.folder)) is None
    assert server_of_origin(None) is None


@pytest.mark.parametrize(
    ("text", "host", "url"),
    [
        ("https://git.example", "git.example", "https://git.example/acme/ci.git"),
        ("http://127.0.0.1:8080/", "127.0.0.1:8080", "http://127.0.0.1:8080/acme/ci.git"),
        ("git@git.example", "git.example", "git@git.example:acme/ci.git"),
    ],
)
def test_the_option_gives_the_server(text: str, host: str, url: str) -> None:
    server = read_server(text)
    assert server is not None
    assert (server.host, server.url("acme/ci")) == (host, url)


@pytest.mark.parametrize("text", ["/srv/git", "ext::sh -c id", "file:///srv", "-x", "https://"])
def test_an_address_of_no_server_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="--server"):
        read_server(text)


def test_permissions_are_compared_folder_by_folder() -> None:
    [prefix] = read_allowed_projects(["git.example/acme/ci"])
    fetcher = ProjectFetcher(read_server("https://git.example"), allowed=[prefix])
    for project in ("acme/cinema", "acme", "acme/../acme/ci", "acme/ci/../../x/y", "-x/y", "acme/ci;x", "acme/.."):
        result = fetcher.fetch(project)
        assert isinstance(result, SourceProblem), project
    with pytest.raises(BadInputError, match="--allow-fetch"):
        read_allowed_projects(["acme ci/../x"])


def test_without_a_server_the_option_is_named() -> None:
    result = ProjectFetcher(None).fetch("acme/ci")
    assert isinstance(result, SourceProblem)
    assert "--server" in result.suggestion


@pytest.mark.parametrize("host", ["\x1b[2Kgit.example", "-x", "git.example?", "a..b/", "git.example:x", "[::1]"])
def test_a_host_that_a_question_could_not_show_is_refused(host: str) -> None:
    result = ProjectFetcher(read_server("https://git.example")).fetch("acme/ci", host)
    assert isinstance(result, SourceProblem)
    assert result.reason.endswith("is not a host")


def test_a_host_of_a_component_needs_its_own_permission(tmp_path: Path) -> None:
    fetcher = ProjectFetcher(read_server("https://git.example"), allowed=read_allowed_projects(["git.example"]))
    result = fetcher.fetch("acme/ci", "evil.example")
    assert isinstance(result, SourceProblem)
    assert "--allow-fetch evil.example/acme/ci" in result.suggestion
