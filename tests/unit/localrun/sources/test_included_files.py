import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.localrun.sources.included_files import WorkTreeSources
from remuda.localrun.sources.worktree import facts_of
from remuda.pipeline import Component, SourceProblem, compile_pipeline
from remuda.pipeline.include.port import parse_address

MakeRepo = Callable[..., Any]


def sources_of(repo: Any, **projects: Any) -> WorkTreeSources:
    folders = {f"group/{name}": Path(getattr(other, "folder", other)) for name, other in projects.items()}
    return WorkTreeSources(repo.folder, facts_of(repo.folder), projects=folders)


def problem(result: object) -> str:
    assert isinstance(result, SourceProblem), result
    return f"{result.reason}; {result.suggestion}"


def component(sources: WorkTreeSources, address: str) -> Component | SourceProblem:
    parsed = parse_address(f"example.org/{address}")
    assert parsed is not None
    return sources.component(parsed)


def test_local_files_as_they_are_now(make_repo: MakeRepo) -> None:
    repo = make_repo(ci__one_yml="old")
    repo.write(ci__one_yml="new", ci__two_yml="untracked")
    sources = sources_of(repo)
    assert sources.local("ci/one.yml") == "new"
    assert sources.local("ci/two.yml") == "untracked"
    assert sources.local("ci/three.yml") is None
    assert sources.local("ci") is None
    assert sources.local_glob("ci/*.yml") == ["ci/one.yml", "ci/two.yml"]
    assert sources.texts == {"ci/one.yml": "new", "ci/two.yml": "untracked"}


def test_local_files_that_are_refused(make_repo: MakeRepo, tmp_path: Path) -> None:
    repo = make_repo(real_yml="x: 1", sub__file_yml="x: 1")
    (tmp_path / "secret.yml").write_text("secret")
    folder = repo.folder
    (folder / "link.yml").symlink_to("real.yml")
    (folder / "out.yml").symlink_to(tmp_path / "secret.yml")
    (folder / "other").symlink_to(tmp_path)
    (folder / "large.yml").write_bytes(b"#" * (1 << 20) + b"##")
    (folder / "latin.yml").write_bytes(b"a: \xe9")
    os.mkfifo(folder / "pipe.yml")
    repo.put(".gitignore", "ignored.yml")
    repo.put("ignored.yml", "x: 1")
    sources = sources_of(repo)
    assert "symbolic link" in problem(sources.local("link.yml"))
    assert "symbolic link" in problem(sources.local("out.yml"))
    assert "symbolic link" in problem(sources.local("other/secret.yml"))
    assert "larger than 1048576 bytes" in problem(sources.local("large.yml"))
    assert "not UTF-8" in problem(sources.local("latin.yml"))
    assert "is not a file" in problem(sources.local("pipe.yml"))
    assert "git ignores" in problem(sources.local("ignored.yml"))
    assert sources.local("sub/\0.yml") is None
    assert sources.local("x" * 5000 + ".yml") is None
    assert sources.local("\udcff.yml") is None


def test_a_folder_without_git(tmp_path: Path) -> None:
    (tmp_path / "one.yml").write_text("x: 1")
    sources = WorkTreeSources(tmp_path, facts_of(tmp_path))
    assert sources.local("one.yml") == "x: 1"
    assert "is not known here; pass --project group/ci=FOLDER" in problem(sources.project("group/ci", None, "a.yml"))


def test_names_with_invalid_utf8_or_line_breaks_are_not_found(make_repo: MakeRepo) -> None:
    repo = make_repo(good_yml="x: 1")
    (repo.folder / os.fsdecode(b"bad\xff.yml")).write_text("x: 1")
    (repo.folder / "line\nbreak.yml").write_text("x: 1")
    assert sources_of(repo).local_glob("*.yml") == ["good.yml"]


def test_files_of_another_project_at_a_ref(make_repo: MakeRepo) -> None:
    ci = make_repo("ci", jobs__a_yml="first")
    first = ci.git("rev-parse", "HEAD")
    ci.git("tag", "v1")
    ci.git("checkout", "--quiet", "-b", "next")
    ci.write(jobs__a_yml="next", jobs__b_yml="b")
    ci.commit()
    ci.git("checkout", "--quiet", "main")
    ci.write(jobs__a_yml="uncommitted")
    sources = sources_of(make_repo(), ci=ci)
    for ref in (None, "main", "v1", first):
        assert sources.project("group/ci", ref, "jobs/a.yml") == "first"
    assert sources.project("group/ci", "next", "jobs/a.yml") == "next"
    assert sources.project_glob("group/ci", "next", "jobs/*.yml") == ["jobs/a.yml", "jobs/b.yml"]
    assert 'no ref "gone"' in problem(sources.project("group/ci", "gone", "jobs/a.yml"))
    assert 'no ref "--x"' in problem(sources.project("group/ci", "--x", "jobs/a.yml"))
    assert 'has no file "c.yml"' in problem(sources.project("group/ci", None, "c.yml"))
    # The pattern is returned as a file name; the compiler asks for that file and reports the missing ref or project.
    assert sources.project_glob("group/ci", "gone", "*.yml") == ["*.yml"]
    assert sources.project_glob("group/none", None, "*.yml") == ["*.yml"]


def test_files_of_another_project_that_are_refused(make_repo: MakeRepo) -> None:
    ci = make_repo("ci", large_yml="#" * ((1 << 20) + 1))
    (ci.folder / "link.yml").symlink_to("/etc/passwd")
    ci.commit()
    sources = sources_of(make_repo(), ci=ci)
    assert "larger than" in problem(sources.project("group/ci", None, "large.yml"))
    assert "is a link" in problem(sources.project("group/ci", None, "link.yml"))


def test_a_folder_that_is_not_a_clone_is_read_as_it_is(make_repo: MakeRepo) -> None:
    repo = make_repo(vendored__a_yml="a", vendored__templates__lint_yml="lint")
    sources = sources_of(repo, ci=repo.folder / "vendored")
    assert sources.project("group/ci", "v9", "a.yml") == "a"
    assert sources.project_glob("group/ci", None, "*.yml") == ["a.yml"]
    result = component(sources, "group/ci/lint@1.0")
    assert isinstance(result, Component)
    assert result.text == "lint"


def test_ones_own_project_at_another_ref(make_repo: MakeRepo) -> None:
    repo = make_repo(a_yml="old")
    repo.git("tag", "v1")
    repo.write(a_yml="new")
    assert sources_of(repo).project("root/shop", "v1", "a.yml") == "old"


@pytest.mark.parametrize(
    ("version", "text"),
    [("1.0.0", "1.0.0"), ("1", "1.10.0"), ("1.2", "1.2.5"), ("~latest", "2.0.0"), ("main", "newest"), ("2.1-rc", None)],
)
def test_components_by_version(make_repo: MakeRepo, version: str, text: str | None) -> None:
    ci = make_repo("ci")
    for tag in ("1.0.0", "1.2.4", "v1.2.5", "1.10.0", "2.0.0", "3.0.0-rc1"):
        ci.write(templates__lint_yml=tag.removeprefix("v"))
        ci.commit()
        ci.git("tag", tag)
    ci.write(templates__lint_yml="newest")
    ci.commit()
    result = component(sources_of(make_repo(), ci=ci), f"group/ci/lint@{version}")
    if text is None:
        assert "has no version" in problem(result)
    else:
        assert isinstance(result, Component)
        assert result.text == text


def test_a_component_in_its_own_folder_includes_files_of_its_project(make_repo: MakeRepo) -> None:
    text = "spec:\n  inputs:\n    name:\n---\ninclude: {local: part.yml}\n$[[ inputs.name ]]:\n  script: [x]\n"
    ci = make_repo("ci", templates__lint__template_yml=text, part_yml="other: {script: [y]}")
    sha = ci.git("rev-parse", "HEAD")
    repo = make_repo()
    file = f"include:\n  - component: example.org/group/ci/lint@{sha}\n    inputs: {{name: check}}\n"
    pipeline = compile_pipeline(file, sources=sources_of(repo, ci=ci))
    assert [job.name for job in pipeline.jobs] == ["other", "check"]
    assert "has no component" in problem(component(sources_of(repo, ci=ci), f"group/ci/none@{sha}"))
    assert "pass --project group/none=FOLDER" in problem(component(sources_of(repo), "group/none/x@1"))


def test_other_templates_and_remote_files_are_not_there_by_default(make_repo: MakeRepo) -> None:
    sources = sources_of(make_repo())
    assert "pass --templates" in problem(sources.template("Auto-DevOps"))
    assert "rust:latest" in str(sources.template("Rust.gitlab-ci.yml"))
    assert "pass --allow-remote https://example.org/" in problem(sources.remote("https://example.org/a.yml"))
