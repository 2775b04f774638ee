"""Includes of pipeline files: files of real repositories, components, and remote files on the allow list."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell, commit_file
from tests.support.git_client import Clone
from tests.support.servers.http_server import PlainHandler, run_http_server

from remuda.cell.git.port import Reader
from remuda.cell.git.repositories import GitRepos
from remuda.cell.pipelines.creation import LINTS
from remuda.cell.pipelines.included_files import CellSources, Outside, TreeFiles, changed_files
from remuda.cell.pipelines.remote_files import RemoteFiles
from remuda.cell.values import Project
from remuda.pipeline import Component, ComponentAddress, SourceProblem
from remuda.testing.builders import a_project
from remuda.testing.waiting import wait_until

HOST = "ci.example:8443"


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    clone = Clone(tmp_path / "work")
    clone.run("init", "--quiet", "-b", "main")
    return clone


@pytest.fixture
def reader(tmp_path: Path, clone: Clone) -> Iterator[Reader]:
    """A reader of `repo`, to which `publish` copies the clone."""
    repos = GitRepos(tmp_path / "repos", tmp_path / "hooks")
    repos.prepare()
    with repos.open_reader() as reader:
        yield reader


def publish(clone: Clone, name: str = "repo") -> str:
    """Copy the clone to the cell's repositories."""
    clone.run("clone", "--quiet", "--mirror", str(clone.folder), str(clone.folder.parent / "repos" / name))
    return name


def open_sources(reader: Reader, sha: str, *projects: Project) -> CellSources:
    by_path = {project.path: project for project in projects}
    refused = SourceProblem(reason="no")
    outside = Outside(
        find_project=by_path.get,
        fetch=lambda _url, _seconds: refused,
        find_template=lambda _name: refused,
        host=HOST,
    )
    return CellSources(reader, "repo", sha, outside)


def reason(problem: object) -> str:
    assert isinstance(problem, SourceProblem), problem
    return problem.reason


def test_local_files_at_the_commit(clone: Clone, reader: Reader) -> None:
    first = clone.commit(**{"ci/a.yml": "first", "ci/deep/b c.yml": "b", "bad.yml": "x", "ünï.yml": "u"})
    (clone.folder / "bad.yml").write_bytes(b"\xff")
    (clone.folder / "big.yml").write_text("#" * 1_100_000)
    (clone.folder / "link.yml").symlink_to("/etc/passwd")
    clone.commit(**{"ci/a.yml": "second"})
    publish(clone)
    old, new = open_sources(reader, first), open_sources(reader, clone.run("rev-parse", "HEAD").stdout.strip())
    assert (old.local("ci/a.yml"), new.local("ci/a.yml")) == ("first", "second")
    assert new.local("ci/deep/b c.yml") == "b"
    assert new.local("ünï.yml") == "u"
    assert "larger than 1048576 bytes" in reason(new.local("big.yml"))
    assert new.local("ci/a.yml") == "second", "after a file that was too large"
    assert "not UTF-8" in reason(new.local("bad.yml"))
    assert new.local("link.yml") == "/etc/passwd", "a link is its text, not what it leads to"
    assert new.local_glob("ci/**.yml") == ["ci/a.yml", "ci/deep/b c.yml"]
    assert new.local_glob("none/*") == []


@pytest.mark.parametrize(
    "path", ["", "ci", "none.yml", "../a.yml", "/etc/passwd", "a\nHEAD:ci/a.yml", "a\0b", "\ud800"]
)
def test_paths_that_are_no_files(clone: Clone, reader: Reader, path: str) -> None:
    sha = clone.commit(**{"ci/a.yml": "a"})
    publish(clone)
    sources = open_sources(reader, sha)
    assert sources.local(path) is None
    assert sources.local("ci/a.yml") == "a", "the next read is not affected"


def test_files_of_other_projects(clone: Clone, reader: Reader) -> None:
    clone.commit(**{"a.yml": "old"})
    clone.run("tag", "v1")
    clone.run("branch", "v1")
    clone.run("branch", "side")
    sha = clone.commit(**{"a.yml": "new", "b.yml": "b"})
    clone.run("branch", "-f", "v1")
    publish(clone)
    sources = open_sources(reader, sha, a_project(path="acme/lib", repo_path="repo"))
    assert sources.project("acme/lib", None, "a.yml") == "new"
    assert sources.project("acme/lib", "HEAD", "a.yml") == "new"
    assert sources.project("acme/lib", "side", "a.yml") == "old"
    assert sources.project("acme/lib", "refs/heads/side", "a.yml") == "old"
    assert sources.project("acme/lib", "v1", "a.yml") == "new", "a branch is preferred to a tag"
    assert sources.project("acme/lib", "refs/tags/v1", "a.yml") == "old"
    assert sources.project("acme/lib", sha[:10], "a.yml") == "new"
    assert sources.project_glob("acme/lib", "main", "*.yml") == ["a.yml", "b.yml"]
    assert reason(sources.project("acme/none", None, "a.yml")) == 'there is no project "acme/none" in this cell'
    assert reason(sources.project("acme/lib", "gone", "a.yml")) == 'the project "acme/lib" has no ref "gone"'
    assert reason(sources.project("acme/lib", "main", "c.yml")) == (
        'the project "acme/lib" has no file "c.yml" at "main"'
    )
    for ref in (
        "main:b.yml",
        "-x",
        "main^{tree}",
        "main~1",
        ":/x",
        "@{-1}",
        "a\nmain",
        "refs/pipelines/1",
        "..",
        "\ud800",
    ):
        assert "has no ref" in reason(sources.project("acme/lib", ref, "a.yml")), ref
        assert "has no ref" in reason(
            sources.project("acme/lib", ref, sources.project_glob("acme/lib", ref, "*.yml")[0])
        )


def test_components(clone: Clone, reader: Reader) -> None:
    for version in ("1.0.0", "v1.2.0", "1.10.0", "1.11.0-rc.1", "2.0.0", "x"):
        clone.commit(**{"templates/lint.yml": version, "templates/test/template.yml": f"test {version}"})
        clone.run("tag", version)
    sha = clone.commit(**{"templates/lint.yml": "unreleased"})
    publish(clone)
    sources = open_sources(reader, sha, a_project(path="acme/ci/lib", repo_path="repo"))

    def find_component(version: str, name: str = "lint", **changes: str) -> Component | SourceProblem:
        values = {"host": HOST, "project": "acme/ci/lib", "name": name, "version": version}
        return sources.component(ComponentAddress(**(values | changes)))

    def text(version: str, name: str = "lint") -> str:
        component = find_component(version, name)
        assert isinstance(component, Component), component
        assert component.project == "acme/ci/lib"
        assert sources.project(component.project, component.ref, component.file) == component.text
        return component.text

    def tag_of(text: str) -> str:
        component = find_component(text)
        assert isinstance(component, Component), component
        return component.version

    assert [tag_of(each) for each in ("1.0.0", "v1.2.0", "1", "~latest", "main", "x")] == [
        "1.0.0",
        "v1.2.0",
        "1.10.0",
        "2.0.0",
        "",
        "",
    ]
    assert text("1.0.0") == "1.0.0"
    assert text("~latest") == "2.0.0"
    assert text("1") == "1.10.0"
    assert text("1.2") == "v1.2.0"
    assert text("x", "test") == "test x"
    assert text("main") == text(sha) == text(sha[:8]) == "unreleased"
    for version in ("3", "1.3", "~newest", "-x", "main^", "1.0.0:templates"):
        assert "has no version" in reason(find_component(version)), version
    assert "another host" in reason(find_component("1.0.0", host="elsewhere.example"))
    assert "no project" in reason(find_component("1.0.0", project="acme/none"))
    for name in ("none", "..", "../lint", ".", "a\nb"):
        assert "no component" in reason(find_component("1.0.0", name)), name


def test_changed_files(clone: Clone, reader: Reader) -> None:
    first = clone.commit(**{"a": "1", "b": "1", "old name": "same"})
    clone.run("checkout", "--quiet", "-b", "feature")
    (clone.folder / "old name").rename(clone.folder / "new name")
    sha = clone.commit(a="2")
    clone.run("checkout", "--quiet", "main")
    clone.commit(b="2")
    clone.run("checkout", "--quiet", "--orphan", "apart")
    clone.commit()
    repo = publish(clone)
    changed = changed_files(reader, repo, sha, first)
    assert changed(None) == frozenset(("a", "old name", "new name"))
    assert changed("main") == frozenset(("a", "old name", "new name"))
    assert reason(changed("gone")) == 'there is no ref "gone" in this repository'
    assert "no common history" in reason(changed("apart"))
    assert changed_files(reader, repo, sha, None)(None) is None
    assert changed_files(reader, repo, sha, "1" * 40)(None) is None, "the commit before a forced push may be missing"
    files = TreeFiles(reader, repo, sha)
    assert set(files) == {"a", "b", "new name"}
    assert "a" in files
    assert len(files["a"]) == 40


class _Remote(PlainHandler):
    """Serves small files, large ones, and redirects to the path in the query; slow files wait for `resume`."""

    requested: ClassVar[list[str]] = []
    resume: ClassVar[threading.Event] = threading.Event()

    def respond(self) -> None:
        self.requested.append(self.path)
        if "slow" in self.path:
            self.resume.wait(60)
        path, _, query = self.path.partition("?")
        body = b"#" * (2_000_000 if path.endswith("big.yml") else 5)
        status = 302 if query else 404 if path.endswith("none.yml") else 200
        self.answer(status, body, {"Location": query} if query else {})


@pytest.fixture
def remote() -> Iterator[str]:
    """The URL of a file server."""
    _Remote.requested.clear()
    _Remote.resume.clear()
    with run_http_server(_Remote) as server:
        yield f"http://127.0.0.1:{server.server_port}"


async def test_remote_files(remote: str) -> None:
    files = RemoteFiles((f"{remote}/ci",), limit_bytes=1_000_000)
    assert await files.fetch(f"{remote}/ci/a.yml") == b"#####"
    assert await files.fetch(f"{remote}/ci/a.yml?/ci/b.yml") == b"#####"
    assert "larger than" in reason(await files.fetch(f"{remote}/ci/big.yml"))
    assert "answered 404" in reason(await files.fetch(f"{remote}/ci/none.yml"))
    assert "redirects more than 3 times" in reason(
        await files.fetch(f"{remote}/ci/a.yml?/ci/a.yml?/ci/a.yml?/ci/a.yml?/ci/a.yml?/ci/b.yml")
    )
    before = list(_Remote.requested)
    for address in (
        f"{remote}/secret.yml",
        f"{remote}/ci-too/a.yml",
        f"{remote}/ci/../a.yml",
        f"{remote}/ci/x%2f..%2f..%2fa.yml",
        f"{remote}/ci/..%5c..%5ca.yml",
        f"{remote}/ci/%252e%252e/a.yml",
        "http://127.0.0.1:1/ci/a",
    ):
        assert "not on the cell's list" in reason(await files.fetch(address)), address
    for address in (f"{remote}@evil.example/ci/a", "http://evil.example\\@127.0.0.1/ci", "file:///etc/passwd", "x", ""):
        assert "not a plain http or https address" in reason(await files.fetch(address)), address
    assert before == _Remote.requested, "no request was sent"
    assert "not on the cell's list" in reason(await files.fetch(f"{remote}/ci/a.yml?/secret.yml"))
    assert "/secret.yml" not in _Remote.requested
    assert "cannot be fetched" in reason(
        await RemoteFiles(("http://127.0.0.1:1",), limit_bytes=9).fetch("http://127.0.0.1:1")
    )
    assert "not on the cell's list" in reason(await RemoteFiles((), limit_bytes=9).fetch(f"{remote}/ci/a.yml"))


async def test_a_cached_remote_file_is_fetched_once(remote: str) -> None:
    files = RemoteFiles((f"{remote}/ci",), limit_bytes=1_000_000)
    for seconds in (0, 60, 60):
        assert await files.fetch(f"{remote}/ci/a.yml", cache_seconds=seconds) == b"#####"
    assert _Remote.requested == ["/ci/a.yml"] * 2
    assert await files.fetch(f"{remote}/ci/a.yml") == b"#####"
    assert _Remote.requested == ["/ci/a.yml"] * 3


def test_templates(tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    (folder / "Jobs").mkdir(parents=True)
    (folder / "Jobs/Mine.gitlab-ci.yml").write_text("mine: {script: [mine]}\n")
    with (
        ServedCell(tmp_path / "one", templates=str(folder)) as one,
        ServedCell(tmp_path / "two", templates=one.url) as two,
    ):
        listed = one.api("GET", "/templates/gitlab_ci_ymls?per_page=100").json()
        assert {"key": "Jobs/Mine", "name": "Jobs/Mine"} in listed
        assert {"key": "Bash", "name": "Bash"} in listed
        assert one.api("GET", "/templates/gitlab_ci_ymls/Jobs%2FMine").json()["content"] == "mine: {script: [mine]}\n"
        assert "busybox" in one.api("GET", "/templates/gitlab_ci_ymls/Bash").json()["content"]
        for name in ("None", "..%2F..%2Fsecret", "%2e%2e%2fx"):
            assert one.api("GET", f"/templates/gitlab_ci_ymls/{name}").status == 404
        file = "include: [{template: Jobs/Mine.gitlab-ci.yml}, {template: Rust.gitlab-ci.yml}]\n"
        for cell in (one, two):
            project_id = cell.new_project("app", file)
            names = {job["name"] for job in cell.api("GET", f"/projects/{project_id}/jobs").json()}
            assert names == {"mine", "test:cargo"}
            wrong = cell.api("POST", f"/projects/{project_id}/ci/lint", {"content": "include: {template: Pyton}"})
            [message] = wrong.json()["errors"]
            assert "Python.gitlab-ci.yml" in message
            assert "REMUDA_TEMPLATES" in message


async def test_an_address_that_hangs_is_left_alone_for_a_while(remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.cell.pipelines.remote_files.DEADLINE_SECONDS", 0.05)
    files = RemoteFiles((f"{remote}/ci",), limit_bytes=1_000_000)
    try:
        for _ in range(3):
            assert "did not answer" in reason(await files.fetch(f"{remote}/ci/slow.yml"))
    finally:
        _Remote.resume.set()
    assert _Remote.requested == ["/ci/slow.yml"]
    monkeypatch.undo()
    assert await files.fetch(f"{remote}/ci/other.yml") == b"#####"


def test_a_file_with_includes_of_every_kind(tmp_path: Path, remote: str) -> None:
    with ServedCell(tmp_path / "cell", remote_includes=(f"{remote}/ci/",)) as cell:
        component = "spec: {inputs: {name: {}}}\n---\n$[[ inputs.name ]]: {script: [component]}\n"
        lib = {"jobs/one.yml": "one: {script: [one]}\ninclude: two.yml\n", "two.yml": "two: {script: [two]}\n"}
        cell.new_project("lib", **lib, **{"templates/lint.yml": component})
        file = f"""
            include:
              - {{project: root/lib, file: jobs/*.yml}}
              - {{component: $CI_SERVER_FQDN/root/lib/lint@main, inputs: {{name: lint}}}}
              - remote: {remote}/ci/a.yml?/ci/empty.yml
              - local: /ci/own.yml
        """
        own = {"ci/own.yml": "own: {script: [own]}\n"}
        project_id = cell.new_project("app", file.replace("\n            ", "\n"), **own)
        [failed] = cell.api("GET", f"/projects/{project_id}/pipelines").json()
        details = cell.api("GET", f"/projects/{project_id}/pipelines/{failed['id']}").json()
        # The only mistake is that the remote file contains no job.
        assert [line.split(":")[0] for line in details["yaml_errors"].splitlines()] == ["http"]
        without = file.replace("\n            ", "\n").replace("- remote", "# ")
        commit_file(cell, project_id, without, action="update")
        runner: ScriptedRunner = cell.new_runner()
        scripts = sorted(runner.take()["steps"][0]["script"][0] for _ in range(4))
        assert scripts == ["component", "one", "own", "two"]


def test_a_server_that_hangs_does_not_block_others(tmp_path: Path, remote: str) -> None:
    with (
        ServedCell(tmp_path / "cell", remote_includes=(f"{remote}/ci/",)) as cell,
        ThreadPoolExecutor(2 * LINTS) as threads,
    ):
        project_id = cell.new_project("app", "a: {script: [x]}\n")

        def lint(text: str) -> bool:
            return bool(cell.api("POST", f"/projects/{project_id}/ci/lint", {"content": text}).json()["valid"])

        slow = f"include: [{{remote: '{remote}/ci/slow.yml'}}]\na: {{script: [x]}}\n"
        waiting = [threads.submit(lint, slow) for _ in range(2 * LINTS)]
        try:
            while len(_Remote.requested) < 2 * LINTS:
                assert not any(future.done() for future in waiting)
                _Remote.resume.wait(0.01)
            assert lint("b: {script: [x]}\n")
            assert not any(future.done() for future in waiting)
        finally:
            _Remote.resume.set()


def test_many_slow_remote_files(tmp_path: Path, remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.cell.pipelines.creation.REMOTE_SECONDS", 1e-9)
    with ServedCell(tmp_path / "cell", remote_includes=(f"{remote}/ci/",)) as cell:
        project_id = cell.new_project("app", "a: {script: [x]}\n")
        text = f"include: [{{remote: '{remote}/ci/none.yml'}}, {{remote: '{remote}/ci/a.yml'}}]\n"
        errors = cell.api("POST", f"/projects/{project_id}/ci/lint", {"content": text}).json()["errors"]
    assert "answered 404" in errors[0]
    assert "the remote files before it took" in errors[1]
    assert _Remote.requested == ["/ci/none.yml"]


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("local: ../../etc/passwd.yml", "leaves the repository"),
        ("local: /ci/../../x.yml", "leaves the repository"),
        ("{project: root/app, file: ../../x.yml}", "leaves the repository"),
        ("{project: ../root/app, file: x.yml}", "no project"),
        ("{project: root/app, ref: '--upload-pack=x', file: x.yml}", "no ref"),
        ("remote: https://example.com/x.yml", "not on the cell's list"),
        ("remote: http://127.0.0.1:1/x.yml", "not on the cell's list"),
        ("component: example.com/root/app/x@1", "another host"),
        ("template: Auto-DevOps.gitlab-ci.yml", "there is no template"),
        ("local: .gitlab-ci.yml", "circle"),
    ],
)
def test_refused_includes(cell: ServedCell, include: str, expected: str) -> None:
    project_id = cell.new_project(
        "app", f"include: [{include if include[0] == '{' else '{' + include + '}'}]\na: {{script: [x]}}\n"
    )
    [failed] = cell.api("GET", f"/projects/{project_id}/pipelines").json()
    details = cell.api("GET", f"/projects/{project_id}/pipelines/{failed['id']}").json()
    assert details["status"] == "failed"
    assert expected in details["yaml_errors"]
    assert details["yaml_errors"].startswith(".gitlab-ci.yml:1:")


def test_a_child_pipeline_from_a_template_a_component_and_an_address(tmp_path: Path, remote: str) -> None:
    with ServedCell(tmp_path / "cell", remote_includes=(f"{remote}/ci/",)) as cell:
        component = (
            "spec: {component: [name, version, reference], inputs: {word: {}}}\n---\n"
            "lint: {script: ['$[[ inputs.word ]] $[[ component.name ]] [$[[ component.version ]]] "
            "$[[ component.reference ]]']}\n"
        )
        cell.new_project("lib", **{"templates/lint.yml": component})
        file = f"""
go:
  trigger:
    include:
      - {{component: $CI_SERVER_FQDN/root/lib/lint@main, inputs: {{word: hello}}}}
      - {{template: Rust.gitlab-ci.yml}}
    strategy: depend
far:
  trigger:
    include: [{{remote: "{remote}/ci/a.yml", integrity: sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}}]
"""
        project_id = cell.new_project("app", file)

        def list_bridges() -> dict[str, Any]:
            rows = cell.api("GET", f"/projects/{project_id}/pipelines/1/bridges").json()
            return {row["name"]: row for row in rows}

        wait_until(lambda: list_bridges()["go"]["downstream_pipeline"] and list_bridges()["far"]["status"] == "failed")
        runner: ScriptedRunner = cell.new_runner()
        scripts = {job["job_info"]["name"]: job["steps"][0]["script"] for job in (runner.take(), runner.take())}
        assert scripts["lint"] == ["hello lint [] main"]
        assert "test:cargo" in scripts
        assert list_bridges()["go"]["downstream_pipeline"]["source"] == "parent_pipeline"
        assert _Remote.requested == ["/ci/a.yml"]
