"""Steps in git repositories over real HTTP: versions, cache, credentials, and errors."""

import asyncio
import os
import shutil
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from tests.support.git_client import git
from tests.support.servers.step_server import TOKEN, StepServer
from tests.support.step_packages import Project

from remuda.steps.language.references import parse_reference
from remuda.steps.language.values import ReferenceKind
from remuda.steps.resolving.errors import ResolveError, TemporaryResolveError
from remuda.steps.resolving.resolver import Resolver
from remuda.steps.resolving.values import Resolved

Resolve = Callable[..., Coroutine[None, None, Resolved]]
FUNC = "spec: {}\n---\nexec:\n  command: [echo, hello]\n"


def list_cache_entries(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "packages").iterdir())


@pytest.fixture
def git_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the arguments of every call of git, one call per line."""
    folder, log = tmp_path / "bin", tmp_path / "git.log"
    folder.mkdir()
    log.touch()
    (folder / "git").write_text(f'#!/bin/sh\necho "$@" >>{log}\nexec {shutil.which("git")} "$@"\n')
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return log


async def test_a_step_of_a_repository(project: Project, resolve: Resolve) -> None:
    commit = project.head
    step = await resolve(f"{project.address}/-/hello@main")
    assert step.reference == f"{project.plain}@{commit} steps/hello/func.yml"
    assert (step.kind, step.commit, step.version, step.file) == (ReferenceKind.GIT, commit, None, "func.yml")
    assert step.text == FUNC
    assert step.root is not None
    assert step.folder == step.root / "steps/hello"
    assert step.digest.startswith("sha256:")
    assert not os.access(step.folder, os.W_OK) or os.getuid() == 0
    assert stat.S_IMODE(step.folder.stat().st_mode) == 0o555


async def test_tags_branches_and_commits_resolve(project: Project, resolve: Resolve) -> None:
    head = project.head
    git(project.work, "tag", "v1")
    git(project.work, "tag", "-a", "-m", "x", "v2")
    project.push("v1", "v2", "HEAD:feature/one")
    resolved = {
        version: await resolve(f"{project.address}/-/hello@{version}")
        for version in ("v1", "v2", "main", "feature/one", head, head[:8])
    }
    assert {step.commit for step in resolved.values()} == {head}
    assert {version: step.version for version, step in resolved.items() if step.version} == {"v1": "v1", "v2": "v2"}
    for version in (head[:7], "nope", "deadbeef" if not head.startswith("deadbeef") else "beefdead"):
        with pytest.raises(ResolveError, match=f"@{version} not found") as error:
            await resolve(f"{project.address}/-/hello@{version}")
        assert not error.value.temporary


async def test_a_name_of_a_tag_and_a_branch_is_refused(project: Project, resolve: Resolve) -> None:
    """A pushed tag must not take the place of a protected branch with the same name."""
    head = project.head
    git(project.work, "tag", "v1")
    evil = project.commit("refs/heads/side", files={"steps/hello/func.yml": FUNC.replace("hello", "evil")})
    project.push("v1", f"{evil}:refs/tags/main", f"{evil}:refs/heads/v1")
    for name in ("main", "v1"):
        with pytest.raises(ResolveError, match=f"write refs/tags/{name} or refs/heads/{name}") as error:
            await resolve(f"{project.address}/-/hello@{name}")
        assert not error.value.temporary
    steps = [
        await resolve(f"{project.address}/-/hello@refs/{name}")
        for name in ("heads/main", "tags/main", "tags/v1", "heads/v1")
    ]
    assert [(step.commit, step.version) for step in steps] == [(head, None), (evil, "main"), (head, "v1"), (evil, None)]


async def test_branch_with_slash_works(project: Project, resolve: Resolve) -> None:
    commit = project.commit("refs/heads/feature/deep/one")
    assert (await resolve(f"{project.address}/-/hello@feature/deep/one")).commit == commit


async def test_moved_branch_is_noticed(project: Project, resolve: Resolve) -> None:
    first = await resolve(f"{project.address}/-/hello@main")
    text = FUNC.replace("hello", "moved")
    commit = project.commit(files={"steps/hello/func.yml": text})
    second = await resolve(f"{project.address}/-/hello@main")
    assert (second.commit, second.text) == (commit, text)
    assert second.digest != first.digest
    assert (first.folder / "func.yml").read_text() == FUNC, "the files of the old commit have changed"


async def test_same_commit_is_one_cache_entry(project: Project, resolve: Resolve, cache: Path) -> None:
    git(project.work, "tag", "-a", "-m", "x", "v1")
    project.push("v1")
    head = project.head
    steps = [await resolve(f"{project.address}/-/hello@{version}") for version in ("main", "v1", head, head[:9])]
    assert len({step.folder for step in steps}) == 1
    assert len(list_cache_entries(cache)) == 1


@pytest.mark.parametrize("version_2", [False, True])
async def test_commit_off_tip_resolves(project: Project, resolver: Resolver, tmp_path: Path, version_2: bool) -> None:
    project.server.speaks_version_2 = version_2
    old = project.head
    project.commit(files={"steps/hello/func.yml": FUNC.replace("hello", "newer")})
    for number, version in enumerate((old, old[:8])):
        fresh = Resolver(tmp_path / f"cache-{number}")
        reference = parse_reference(f"{project.address}/-/hello@{version}", "test")
        step = await fresh.resolve(reference, base=tmp_path, root=None, env={})
        assert (step.commit, step.text) == (old, FUNC)


async def test_cache_stores_no_credentials(project: Project, resolve: Resolve, cache: Path, git_log: Path) -> None:
    step = await resolve(f"{project.address}/-/hello@main")
    for folder, _, files in os.walk(cache):
        for name in files:
            assert TOKEN.encode() not in Path(folder, name).read_bytes()
    calls = git_log.read_text()
    assert "fetch" in calls
    assert "ls-remote" in calls
    assert TOKEN not in calls
    assert TOKEN not in repr(step)
    wrong = project.address.replace(TOKEN, "wrong-secret")
    with pytest.raises(ResolveError, match="does not accept these credentials") as error:
        await resolve(f"{wrong}/-/hello@main")
    assert "wrong-secret" not in str(error.value)
    with pytest.raises(ResolveError, match="asks for credentials"):
        await resolve(f"{project.plain}/-/hello@main")


async def test_host_without_dot_and_path_ending_v1_work(server: StepServer, tmp_path: Path, resolve: Resolve) -> None:
    project = Project.new(server, tmp_path / "work", "group/tools/v1")
    commit = project.commit(files={"steps/func.yml": FUNC})
    address = project.address.replace("127.0.0.1", "localhost")
    step = await resolve(f"{address}@main")
    assert step.commit == commit
    assert step.reference == f"http://localhost:{project.server.port}/group/tools/v1@{commit} steps/func.yml"


async def test_git_dir_cannot_leave_the_repository(project: Project, resolve: Resolve, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/func.yml").write_text(FUNC)
    (project.work / "steps/away").symlink_to(tmp_path / "outside")
    (project.work / "steps/inner").symlink_to("hello")
    project.commit()
    with pytest.raises(ResolveError, match="leads out of the package"):
        await resolve(f"{project.address}/-/away@main")
    step = await resolve(f"{project.address}/-/inner@main")
    assert step.text == FUNC
    caller = {"base": step.folder, "root": step.root}
    assert (await resolve("../hello", **caller)).text == FUNC
    for path in ("../../../outside", str(tmp_path / "outside"), "../../../../../../../etc", "../away"):
        with pytest.raises(ResolveError, match="leads out of the package"):
            await resolve(path, **caller)


async def test_a_local_step_of_a_package_belongs_to_that_package(project: Project, resolve: Resolve) -> None:
    commit = project.commit(files={"steps/hello/sub/step.yml": FUNC})
    outer = await resolve(f"{project.address}/-/hello@main")
    inner = await resolve("./sub", base=outer.folder, root=outer.root)
    assert inner.reference == f"{project.plain}@{commit} steps/hello/sub/step.yml"
    assert (inner.kind, inner.digest, inner.commit) == (ReferenceKind.GIT, outer.digest, commit)
    assert (inner.pinned.path, inner.pinned.file) == ("steps/hello/sub", "step.yml")


async def test_dynamic_path_is_relative_to_the_caller(project: Project, resolve: Resolve) -> None:
    project.commit(files={"steps/hello/sub/func.yml": FUNC})
    outer = await resolve(f"{project.address}/-/hello@main")
    # The value of an expression is parsed like a written reference.
    inner = await resolve("./sub", base=outer.folder, root=outer.root)
    assert inner.folder == outer.folder / "sub"


async def test_missing_ca_certificates_are_named(untrusted_server: str, resolve: Resolve, tmp_path: Path) -> None:
    with pytest.raises(TemporaryResolveError, match="install CA certificates on this machine") as error:
        await resolve(f"https://{untrusted_server}/group/project.git@main")
    assert untrusted_server in str(error.value)
    with pytest.raises(TemporaryResolveError, match="install CA certificates on this machine"):
        await resolve(
            f"https://{untrusted_server}/group/project.git@main", env={"SSL_CERT_FILE": str(tmp_path / "none.pem")}
        )


async def test_error_if_git_is_missing(project: Project, resolve: Resolve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TemporaryResolveError, match="git is not installed on this machine"):
        await resolve(f"{project.address}/-/hello@main")


async def test_offline_run_from_cache(project: Project, resolve: Resolve) -> None:
    first = await resolve(f"{project.address}/-/hello@main")
    assert first.commit is not None
    project.server.git_answers = [-1] * 20
    second = await resolve(f"{project.address}/-/hello@main")
    assert (second.commit, second.digest) == (first.commit, first.digest)
    assert "cannot be reached" in second.remark
    for version in (first.commit, first.commit[:8]):
        if version == first.commit:
            assert (await resolve(f"{project.address}/-/hello@{version}")).remark == ""
        else:
            project.server.git_answers = []
            await resolve(f"{project.address}/-/hello@{version}")
            project.server.git_answers = [-1] * 20
            assert (await resolve(f"{project.address}/-/hello@{version}")).remark


async def test_a_commit_in_the_cache_needs_no_server(project: Project, resolve: Resolve, git_log: Path) -> None:
    first = await resolve(f"{project.address}/-/hello@main")
    before = git_log.read_text()
    second = await resolve({"git": {"url": project.plain, "rev": first.commit, "dir": "steps/hello"}})
    assert second.folder == first.folder
    assert git_log.read_text() == before


async def test_pinned_reference_resolves_again(project: Project, resolve: Resolve, cache: Path, tmp_path: Path) -> None:
    first = await resolve(f"{project.address}/-/hello@main")
    project.server.git_answers = [-1] * 20
    second = await Resolver(cache).resolve(first.pinned, base=tmp_path, root=None, env={})
    assert (second.reference, second.digest, second.folder) == (first.reference, first.digest, first.folder)


async def test_temporary_failures_are_retried(project: Project, resolve: Resolve) -> None:
    project.server.git_answers = [503, -1]
    assert (await resolve(f"{project.address}/-/hello@main")).text == FUNC


async def test_error_for_a_server_that_stays_unavailable(project: Project, tmp_path: Path) -> None:
    project.server.git_answers = [503] * 50
    reference = parse_reference(f"{project.address}/-/hello@main", "test")
    with pytest.raises(TemporaryResolveError, match="cannot be reached") as error:
        await Resolver(tmp_path / "c", patience_seconds=0.2).resolve(reference, base=tmp_path, root=None, env={})
    assert error.value.temporary


async def test_modes_and_links_are_kept_submodules_are_not(project: Project, resolve: Resolve) -> None:
    (project.work / "steps/hello/run.sh").write_text("#!/bin/sh\necho hi\n")
    (project.work / "steps/hello/run.sh").chmod(0o755)
    (project.work / "steps/hello/link").symlink_to("run.sh")
    project.commit(files={".gitattributes": "*.txt export-ignore eol=crlf\n", "a.txt": "a\nb\n"})
    head = project.head
    git(project.work, "update-index", "--add", "--cacheinfo", f"160000,{head},module")
    git(project.work, "commit", "-q", "-m", "module")
    project.push("HEAD:refs/heads/main")
    step = await resolve(f"{project.address}/-/hello@main")
    assert step.root is not None
    assert stat.S_IMODE((step.folder / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((step.folder / "func.yml").stat().st_mode) == 0o644
    assert os.readlink(step.folder / "link") == "run.sh"
    assert not (step.root / "module").exists()
    assert (step.root / "a.txt").read_bytes() == b"a\nb\n"


async def test_sha256_repositories(server: StepServer, tmp_path: Path, resolve: Resolve) -> None:
    project = Project.new(server, tmp_path / "work", "group/other.git", "--object-format=sha256")
    old = project.commit(files={"steps/func.yml": FUNC})
    head = project.commit()
    assert len(head) == 64
    for version, commit in (("main", head), (head, head), (old[:12], old), (head[:10], head)):
        assert (await resolve(f"{project.address}@{version}")).commit == commit


async def test_concurrent_resolutions_fetch_once(project: Project, resolve: Resolve, git_log: Path) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(resolve(f"{project.address}/-/hello@main")) for _ in range(5)]
    assert len({task.result().folder for task in tasks}) == 1
    assert sum(" fetch " in f" {line} " for line in git_log.read_text().splitlines()) == 1


async def test_concurrent_resolvers_share_the_cache(project: Project, cache: Path, tmp_path: Path) -> None:
    """The resolvers share only the folder, as those of different processes do."""
    reference = parse_reference(f"{project.address}/-/hello@main", "test")
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(Resolver(cache).resolve(reference, base=tmp_path, root=None, env={})) for _ in range(3)
        ]
    assert len({task.result().folder for task in tasks}) == 1
    assert len(list_cache_entries(cache)) == 1
    assert not list((cache / "new").iterdir())


@pytest.mark.parametrize("file", ["steps/hello/func.yml", "steps/hello/data", "new"])
async def test_a_package_that_was_tampered_with_is_not_used(project: Project, resolve: Resolve, file: str) -> None:
    project.commit(files={"steps/hello/data": "good"})
    first = await resolve(f"{project.address}/-/hello@main")
    assert first.root is not None
    (first.root / file).parent.chmod(0o755)
    (first.root / file).write_text("evil")
    second = await resolve(f"{project.address}/-/hello@main")
    assert (second.text, second.digest) == (FUNC, first.digest)
    assert (second.folder / "data").read_text() == "good"
    assert not (second.folder / "new").exists()


async def test_cancelled_resolution_is_clean(project: Project, resolver: Resolver, tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\ntouch {tmp_path}/started\nexec sleep 600\n")
    (folder / "git").chmod(0o755)
    reference = parse_reference(f"{project.address}/-/hello@main", "test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(resolver.resolve(reference, base=tmp_path, root=None, env={}))
            while not (tmp_path / "started").exists():  # noqa: ASYNC110 - a file gives no event
                await asyncio.sleep(0.01)
            task.cancel()
    assert task.cancelled()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert (await resolver.resolve(reference, base=tmp_path, root=None, env={})).text == FUNC
    assert not list((cache / "new").iterdir())


async def test_errors_for_missing_steps(project: Project, resolve: Resolve) -> None:
    with pytest.raises(ResolveError, match=r"folder steps/helo of the package does not exist; did you mean hello\?"):
        await resolve(f"{project.address}/-/helo@main")
    with pytest.raises(ResolveError, match=r"has no other.yml; it has func.yml"):
        await resolve(f"{project.address}/-/hello/other.yml@main")
    project.commit(files={"steps/empty/README": "x"})
    with pytest.raises(ResolveError, match=r"has neither func.yml nor step.yml"):
        await resolve(f"{project.address}/-/empty@main")
