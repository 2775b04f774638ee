import re
from textwrap import dedent

from remuda.cli.render.graph import graph_of
from remuda.cli.render.graph_text import dot, tree
from remuda.pipeline import compile_pipeline, prerequisites

TEXT = """\
stages: [build, test, deploy]
compile: {stage: build, script: [x]}
docs: {stage: build, script: [x]}
unit: {stage: test, needs: [compile], script: [x]}
測試: {stage: test, needs: [], allow_failure: true, script: [x]}
release: {stage: deploy, when: manual, script: [x]}
other: {stage: deploy, needs: [unit], trigger: group/other}
"""


def test_a_tree_by_stage() -> None:
    assert "\n".join(tree(graph_of(compile_pipeline(TEXT)), "stage")) == dedent(
        """\
        build
        ├─ compile
        └─ docs
        test
        ├─ unit                       ← compile
        └─ 測試     may fail          at once
        deploy
        ├─ release  manual, may fail  after test
        └─ other    trigger           ← unit"""
    )


def test_a_tree_by_needs() -> None:
    assert "\n".join(tree(graph_of(compile_pipeline(TEXT)), "needs")) == dedent(
        """\
        level 1
        ├─ compile
        ├─ docs
        └─ 測試     may fail          at once
        level 2
        └─ unit                       ← compile
        level 3
        ├─ release  manual, may fail  after the earlier stages
        └─ other    trigger           ← unit"""
    )


def test_many_needs_are_counted() -> None:
    jobs = "".join(f"j{n}: {{needs: [], script: [x]}}\n" for n in range(8))
    names = ", ".join(f"j{n}" for n in range(8))
    lines = tree(graph_of(compile_pipeline(f"{jobs}last: {{needs: [{names}], script: [x]}}")), "stage")
    assert lines[-1] == "└─ last  ← j0, j1, j2, j3, j4 and 3 more"


def test_no_pipeline() -> None:
    skipped = compile_pipeline("workflow: {rules: [{when: never}]}\njob: {script: [x]}")
    assert tree(graph_of(skipped), "stage") == ["no pipeline: the rule of workflow:rules on line 1 says never"]
    assert dot(graph_of(skipped))[-1] == "}"


def test_the_dot_graph_has_a_path_for_every_prerequisite() -> None:
    text = f"{TEXT}early: {{stage: .pre, script: [x]}}\nlate: {{stage: .post, script: [x]}}\n"
    pipeline = compile_pipeline(text)
    lines = dot(graph_of(pipeline))
    names = {match[2]: match[1] for line in lines if (match := re.match(r'    (n\d+) \[label="([^"\\]*)', line))}
    edges: dict[str, set[str]] = {}
    for line in lines:
        if match := re.match(r"  (\w+) -> (\w+)", line):
            edges.setdefault(match[2], set()).add(match[1])

    def ancestors(node: str) -> set[str]:
        parents = set(edges.get(node, ()))
        return parents.union(*(ancestors(each) for each in parents))

    for name, before in prerequisites(pipeline.jobs).items():
        assert {names[each] for each in before} <= ancestors(names[name]), name


def test_hostile_names_are_quoted() -> None:
    pipeline = compile_pipeline('"a\\"];\\\\\\n\\x1b": {script: [x]}')
    (line,) = [line for line in dot(graph_of(pipeline)) if line.startswith("    n0")]
    assert line == r'    n0 [label="a\"];\\\\n\\x1b"];'
    assert all(line.isprintable() for line in tree(graph_of(pipeline), "stage"))
