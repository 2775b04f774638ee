"""Lint of a pipeline file: the included files and the errors."""

from remuda.cell.pipelines.lint import Included, lint
from remuda.pipeline import Component, Facts, MemorySources

SOURCES = MemorySources(
    {"a.yml": ".a: {script: [x]}"},
    projects={"acme/ci": {"b.yml": ".b: {script: [x]}"}},
    remotes={"https://ci.example/c.yml": ".c: {script: [x]}"},
    components={
        "ci.example/acme/ci/d@1": Component(
            text=".d: {script: [x]}", project="acme/ci", ref="1", file="templates/d.yml"
        )
    },
)
FILE = """
include:
  - a.yml
  - {project: acme/ci, file: b.yml, ref: v1}
  - {remote: https://ci.example/c.yml}
  - {component: ci.example/acme/ci/d@1}
job:
  extends: .a
"""


def test_every_included_file_is_listed_once() -> None:
    result = lint(FILE, file="f.yml", facts=Facts(), sources=SOURCES, inputs={})
    assert result.included == (
        Included(kind="local", location="a.yml"),
        Included(kind="file", location="b.yml", project="acme/ci", ref="v1"),
        Included(kind="remote", location="https://ci.example/c.yml"),
        Included(kind="component", location="ci.example/acme/ci/d@1"),
    )
    assert result.compiled is not None
    assert [job.name for job in result.compiled.jobs] == ["job"]
    assert "script" in (result.merged or "")


def test_a_missing_file_is_an_error_and_not_listed() -> None:
    result = lint("include: [a.yml, x.yml]\nj: {script: x}", file="f.yml", facts=Facts(), sources=SOURCES, inputs={})
    assert [(mistake.file, mistake.line) for mistake in result.mistakes] == [("f.yml", 1)]
    assert (result.compiled, result.merged, [file.location for file in result.included]) == (None, None, ["a.yml"])
