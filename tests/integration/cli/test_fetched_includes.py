"""`include:project`, `component`, `remote` and `template` from a git and web server with a login, in local commands."""

import base64
import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import Clone
from tests.support.servers.http_server import PlainHandler, run_http_server
from tests.support.user_terminal import UserTerminal

PASSWORD = "s3cret-of-ann"
LOGIN = "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()


class GitServer:
    """A git server on loopback whose projects need a login; it also answers GitLab's calls for templates and files."""

    def __init__(self, root: Path, port: int) -> None:
        self.root = root
        self.host = f"127.0.0.1:{port}"
        self.requests: list[str] = []

    def add_project(self, path: str, environment: dict[str, str], **files: str) -> Clone:
        work = Clone(self.root / f"work-{path.replace('/', '-')}", environment)
        work.git("init", "--quiet", "--initial-branch=main")
        work.commit(**files)
        bare = self.root / f"{path}.git"
        work.git("clone", "--quiet", "--bare", str(work.folder), str(bare))
        work.git("remote", "add", "origin", str(bare))
        return work


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    requests: list[str] = []

    class Handler(PlainHandler):
        def respond(self) -> None:
            requests.append(self.path)
            body = self.read_body()
            if self.path == "/ci/shared.yml":
                self.answer(200, b"remote-job: {script: [echo remote]}\n")
            elif self.path.startswith("/api/v4/templates/gitlab_ci_ymls/House"):
                self.answer(200, json.dumps({"content": "house-job: {script: [echo house]}\n"}).encode())
            elif ".git/" not in self.path:
                self.answer(404)
            elif self.headers["Authorization"] != LOGIN:
                self.answer(401, headers={"WWW-Authenticate": 'Basic realm="git"'})
            else:
                self.answer_with_git(tmp_path, body, self.headers["Git-Protocol"] or "")

    with run_http_server(Handler) as listening:
        git_server = GitServer(tmp_path, listening.server_address[1])
        git_server.requests = requests
        yield git_server


@pytest.fixture
def shop(world: Any, server: GitServer) -> Callable[[str], Clone]:
    """A function that makes a repository whose `origin` is on the server."""

    def make(pipeline: str) -> Clone:
        clone = Clone(world.folder / "shop", world.environment())
        clone.git("init", "--quiet", "--initial-branch=main")
        clone.git("remote", "add", "origin", f"http://{server.host}/acme/shop.git")
        clone.commit(**{".gitlab-ci.yml": pipeline})
        return clone

    return make


def store_login(world: Any, server: GitServer) -> None:
    """Give git the login, as a user would: a credential helper in the user's configuration."""
    (world.folder / ".gitconfig").write_text("[credential]\n\thelper = store\n")
    (world.folder / ".git-credentials").write_text(f"http://ann:{PASSWORD}@{server.host.replace(':', '%3a')}\n")


PROJECT = "include: {project: acme/ci, file: jobs.yml}\n"
JOBS = {"jobs.yml": "included: {script: [echo from acme/ci]}\n"}


def test_a_permitted_project_is_fetched_with_the_users_credentials(
    world: Any, server: GitServer, shop: Callable[[str], Clone]
) -> None:
    work = server.add_project("acme/ci", world.environment(), **JOBS)
    store_login(world, server)
    clone = shop(PROJECT)
    result = world.remuda("run", clone.folder, "--allow-fetch", f"{server.host}/acme/ci", "--output", "json")
    assert result.code == 0, result.err
    assert [job["name"] for job in json.loads(result.out)["jobs"]] == ["included"]
    assert PASSWORD not in result.err
    # The next run has what was pushed meanwhile; the group may be permitted as a whole, in the user's file.
    work.commit(**{"jobs.yml": "newer: {script: [echo]}\n"})
    work.push("main")
    settings = world.folder / ".config" / "remuda" / "settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'allow-fetch = ["{server.host}/acme"]\n')
    assert "newer" in world.remuda("pipeline", "show", clone.folder).out
    assert clone.git("status", "--porcelain") == ""


def test_what_child_pipelines_include_is_fetched_before_the_run(
    world: Any, server: GitServer, shop: Callable[[str], Clone]
) -> None:
    server.add_project("acme/ci", world.environment(), **JOBS)
    server.add_project("acme/deep", world.environment(), **{"jobs.yml": "deep: {script: [echo]}\n"})
    store_login(world, server)
    clone = shop(
        "child: {variables: {F: jobs.yml}, trigger: {include: [{project: acme/ci, file: $F}], strategy: depend}}\n"
        "nested: {trigger: {include: [{local: nested.yml}], strategy: depend}}\n"
    )
    clone.commit(**{"nested.yml": "include: {project: acme/deep, file: jobs.yml}\n"})
    result = world.remuda("run", clone.folder, "--allow-fetch", server.host, "--output", "json")
    assert result.code == 0, result.out + result.err
    jobs = {job["name"]: job["downstream"]["jobs"] for job in json.loads(result.out)["jobs"]}
    assert [job["name"] for job in jobs["child"]] == ["included"]
    assert [job["name"] for job in jobs["nested"]] == ["deep"]
    refused = world.remuda("run", clone.folder, "--allow-fetch", f"{server.host}/acme/ci")
    assert refused.code == 1
    assert "the child pipeline of nested will fail" in refused.err
    assert f"--allow-fetch {server.host}/acme/deep" in refused.err


def test_components_are_fetched_by_version(world: Any, server: GitServer, shop: Callable[[str], Clone]) -> None:
    work = server.add_project("acme/parts", world.environment(), **{"templates/lint.yml": "one: {script: [echo 1]}\n"})
    work.git("tag", "1.0.0")
    work.commit(**{"templates/lint.yml": "two: {script: [echo 2]}\n"})
    work.git("tag", "1.2.0")
    work.push("main", "--tags")
    store_login(world, server)
    clone = shop("include: [{component: $CI_SERVER_FQDN/acme/parts/lint@1.0.0}]\n")
    allowed = ("--allow-fetch", server.host)
    assert "one" in world.remuda("pipeline", "show", clone.folder, *allowed).out
    clone.commit(**{".gitlab-ci.yml": "include: [{component: $CI_SERVER_FQDN/acme/parts/lint@~latest}]\n"})
    result = world.remuda("run", clone.folder, *allowed, "--output", "json")
    assert result.code == 0, result.err
    assert [job["name"] for job in json.loads(result.out)["jobs"]] == ["two"]
    # The tag of a version is not fetched again.
    server.requests.clear()
    clone.commit(**{".gitlab-ci.yml": "include: [{component: $CI_SERVER_FQDN/acme/parts/lint@1.0.0}]\n"})
    assert "one" in world.remuda("pipeline", "show", clone.folder, *allowed).out
    assert server.requests == []


def test_without_permission_and_terminal_the_cause_and_the_cure_are_named(
    world: Any, server: GitServer, shop: Callable[[str], Clone]
) -> None:
    clone = shop(PROJECT)
    for words in (("run",), ("pipeline", "lint")):
        result = world.remuda(*words, clone.folder)
        text = result.out + result.err
        assert result.code == 2
        assert f"fetching it from {server.host} is not allowed" in text
        assert f"--allow-fetch {server.host}/acme/ci" in text
        assert "settings.toml" in text
        assert "--project acme/ci=FOLDER" in text
    assert server.requests == []


def test_a_refused_login_is_an_error_without_the_password(
    world: Any, server: GitServer, shop: Callable[[str], Clone]
) -> None:
    server.add_project("acme/ci", world.environment(), **JOBS)
    clone = shop(PROJECT)
    clone.git("remote", "set-url", "origin", f"http://ann:wrong-secret@{server.host}/acme/shop.git")
    result = world.remuda("pipeline", "lint", clone.folder, "--allow-fetch", server.host)
    assert result.code == 2
    assert "cannot fetch acme/ci" in result.out
    assert "Authentication failed" in result.out
    assert "git ls-remote" in result.out
    assert "wrong-secret" not in result.out + result.err


def test_a_copy_is_used_with_a_note_if_the_server_does_not_answer(
    world: Any, tmp_path: Path, server: GitServer, shop: Callable[[str], Clone]
) -> None:
    server.add_project("acme/ci", world.environment(), **JOBS)
    store_login(world, server)
    clone = shop(PROJECT)
    allowed = ("--allow-fetch", server.host)
    assert world.remuda("pipeline", "lint", clone.folder, *allowed).code == 0
    # Nobody listens at this port any more.
    cache = world.folder / ".cache" / "remuda" / "projects"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
    (cache / server.host.replace(":", "%3A")).rename(cache / dead.replace(":", "%3A"))
    clone.git("remote", "set-url", "origin", f"http://{dead}/acme/shop.git")
    result = world.remuda("run", clone.folder, "--allow-fetch", dead, "--output", "json")
    assert result.code == 0, result.err
    assert f"cannot fetch acme/ci from {dead}" in result.err
    assert "using the copy of 20" in result.err
    # A copy is no permission, and without a copy there is an error.
    assert world.remuda("pipeline", "lint", clone.folder).code == 2
    clone.commit(**{".gitlab-ci.yml": "include: {project: acme/other, file: jobs.yml}\n"})
    result = world.remuda("pipeline", "lint", clone.folder, "--allow-fetch", dead)
    assert result.code == 2
    assert "cannot fetch acme/other" in result.out


def test_the_user_is_asked_once_and_the_answer_is_stored(
    world: Any, server: GitServer, shop: Callable[[str], Clone]
) -> None:
    server.add_project("acme/ci", world.environment(), **JOBS)
    store_login(world, server)
    clone = shop(PROJECT + "build: {script: [echo]}\n")
    settings = world.folder / ".config" / "remuda" / "settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("# mine\njobs = 2\n")

    def ask(answer: str, shown: str, *words: str) -> int:
        terminal = UserTerminal(*words, str(clone.folder), env=world.environment())
        try:
            terminal.read_until(f"Fetch acme/ci from {server.host}? [y/N/always] ")
            terminal.type(answer)
            terminal.read_until(shown)
            return terminal.wait_for_exit()
        finally:
            terminal.close()

    assert ask("\n", "1 mistake", "pipeline", "lint") == 2
    assert server.requests == []
    assert ask("y\n", "is good", "pipeline", "lint") == 0
    assert settings.read_text() == "# mine\njobs = 2\n"
    assert ask("always\n", "remuda: stored in", "run") == 0
    assert settings.read_text() == f'# mine\njobs = 2\nallow-fetch = ["{server.host}/acme/ci"]\n'
    assert not (clone.folder / ".remuda.toml").exists()
    # Now nobody is asked.
    assert world.remuda("pipeline", "lint", clone.folder).code == 0


def test_git_may_ask_for_a_password_on_the_terminal(
    world: Any, server: GitServer, shop: Callable[[str], Clone]
) -> None:
    server.add_project("acme/ci", world.environment(), **JOBS)
    clone = shop(PROJECT)
    terminal = UserTerminal(
        *("pipeline", "lint", str(clone.folder), "--allow-fetch", server.host), env=world.environment()
    )
    try:
        terminal.read_until("Username for")
        terminal.type("ann\n")
        terminal.read_until("Password for")
        terminal.type(f"{PASSWORD}\n")
        terminal.read_until("is good")
        assert terminal.wait_for_exit() == 0
    finally:
        terminal.close()


def test_remote_files_and_templates_are_asked_for_too(
    world: Any, server: GitServer, shop: Callable[[str], Clone]
) -> None:
    clone = shop(f"include: [{{remote: 'http://{server.host}/ci/shared.yml'}}, {{template: House.gitlab-ci.yml}}]\n")
    terminal = UserTerminal("run", str(clone.folder), "--output", "json", env=world.environment())
    try:
        terminal.read_until(f"Fetch http://{server.host}/ci/shared.yml? [y/N/always] ")
        terminal.type("always\n")
        terminal.read_until(f"Fetch the template House.gitlab-ci.yml from http://{server.host}? [y/N/always] ")
        terminal.type("y\n")
        text = terminal.read_until('"tests"', 60)
        assert terminal.wait_for_exit() == 0
    finally:
        terminal.close()
    assert '"remote-job"' in text
    assert '"house-job"' in text
    result = world.remuda("pipeline", "lint", clone.folder)
    assert "set `templates` in your settings" in result.out
    assert "allow-remote" not in result.out
    assert "1 mistake" in result.out


def test_ctrl_c_during_a_fetch_leaves_no_process(world: Any, shop: Callable[[str], Clone]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        clone = shop(PROJECT)
        clone.git("remote", "set-url", "origin", f"http://{host}/acme/shop.git")
        process = world.start("run", clone.folder, "--allow-fetch", host)
        connection, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        connection.close()
    assert world.is_empty()


def test_ctrl_c_at_the_question_ends_the_run(world: Any, server: GitServer, shop: Callable[[str], Clone]) -> None:
    clone = shop(PROJECT)
    terminal = UserTerminal("run", str(clone.folder), env=world.environment())
    try:
        terminal.read_until("[y/N/always] ")
        terminal.type("\x03")
        terminal.read_until("interrupted")
        assert terminal.wait_for_exit() == 130
    finally:
        terminal.close()
    assert server.requests == []
    assert world.is_empty()


def test_two_commands_may_fetch_at_the_same_time(
    world: Any, server: GitServer, shop: Callable[[str], Clone], finish: Callable[..., Any]
) -> None:
    server.add_project("acme/ci", world.environment(), **JOBS)
    store_login(world, server)
    clone = shop(PROJECT)
    words = ("pipeline", "lint", clone.folder, "--allow-fetch", server.host)
    results = [finish(each) for each in [world.start(*words) for _ in range(3)]]
    assert [result.code for result in results] == [0, 0, 0], results


def test_a_lock_file_of_a_killed_git_is_removed(world: Any, server: GitServer, shop: Callable[[str], Clone]) -> None:
    work = server.add_project("acme/ci", world.environment(), **JOBS)
    store_login(world, server)
    clone = shop(PROJECT)
    words = ("pipeline", "show", clone.folder, "--allow-fetch", server.host)
    assert world.remuda(*words).code == 0
    [copy] = (world.folder / ".cache" / "remuda" / "projects").glob("*/*.git")
    (copy / "refs" / "heads" / "main.lock").touch()
    work.commit(**{"jobs.yml": "newer: {script: [echo]}\n"})
    work.push("main")
    result = world.remuda(*words)
    assert "newer" in result.out, result.err
    assert subprocess.run(["git", "fsck"], cwd=copy, capture_output=True, check=False).returncode == 0
