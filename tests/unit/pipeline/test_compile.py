"""Compilation of whole files, and mistakes at the top level."""

from collections.abc import Callable

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.pipeline import JobSpec, Mistake, Pipeline, PipelineError, compile_pipeline
from remuda.pipeline.errors import MAX_WARNINGS
from remuda.pipeline.syntax import known_keys

Jobs = Callable[[str], dict[str, JobSpec]]
Mistakes = Callable[[str], list[str]]


def test_the_smallest_pipeline() -> None:
    pipeline = compile_pipeline("hello: {script: echo hello}")
    assert pipeline == Pipeline(
        stages=(".pre", "build", "test", "deploy", ".post"),
        variables={},
        jobs=(JobSpec(name="hello", stage="test", stage_index=2, script=("echo hello",), line=1),),
    )


def test_warnings_do_not_prevent_a_pipeline() -> None:
    pipeline = compile_pipeline("a: {script: x}\na: {script: y}", file="f")
    assert [job.script for job in pipeline.jobs] == [("y",)]
    [warning] = pipeline.warnings
    assert (warning.file, warning.line, warning.column, warning.key) == ("f", 2, 1, "a")
    with pytest.raises(PipelineError) as caught:
        compile_pipeline("a: {script: x}\na: {script: y, b: z}", file="f")
    assert ([m.key for m in caught.value.errors], [m.key for m in caught.value.warnings]) == (["a:b"], ["a"])


def test_too_many_warnings_are_counted() -> None:
    text = "".join(f"a{number}: {{script: x, script: y}}\n" for number in range(MAX_WARNINGS + 5))
    warnings = compile_pipeline(text).warnings
    assert len(warnings) == MAX_WARNINGS + 1
    assert warnings[-1].message == "5 more warnings are not shown"


def test_a_pipeline_survives_json() -> None:
    text = "a: {script: x, parallel: 2, artifacts: {paths: [o]}}\nb: {script: y, needs: [a], variables: {V: 1}}"
    pipeline = compile_pipeline(text)
    assert msgspec.json.decode(msgspec.json.encode(pipeline), type=Pipeline) == pipeline


def test_a_job_stored_by_the_first_release_is_still_read() -> None:
    stored = b"""{"version": 1, "name": "a", "stage": "test", "stage_index": 2, "script": ["x"], "after_script": [],
        "variables": {"A": "b"}, "needs": [{"job": "b", "artifacts": true, "optional": false}],
        "artifacts": {"paths": ["o"], "exclude": [], "untracked": false, "when": "always", "name": "", "expire_in": ""},
        "allow_failure": false, "tags": [], "when": "manual", "timeout_seconds": null, "retry_max": 0,
        "retry_when": ["always"], "dependencies": null, "line": 3}"""
    job = msgspec.json.decode(stored, type=JobSpec)
    assert (job.name, job.when, job.line, job.image, job.trigger) == ("a", "manual", 3, None, None)


def test_stages_keep_their_order_between_the_outer_ones(jobs: Jobs) -> None:
    text = "stages: [.post, one, [two], one]\na: {stage: two, script: x}\nb: {stage: .pre, script: x}"
    assert compile_pipeline(text).stages == (".pre", "one", "two", ".post")
    assert {name: job.stage_index for name, job in jobs(text).items()} == {"a": 2, "b": 0}


def test_defaults_apply_to_keywords_that_a_job_leaves_out(jobs: Jobs) -> None:
    compiled = jobs("""
        default:
          before_script: [setup]
          after_script: [clean]
          artifacts: {paths: [log]}
          tags: [linux]
          timeout: 10m
          retry: 1
        silent: {script: x}
        own:
          before_script: []
          script: x
          after_script: mine
          artifacts: {untracked: true}
          tags: [big, [arm]]
          timeout: 20m
          retry: {max: 2, when: [script_failure]}
        empty:
          script: x
          artifacts: {}
          tags:
          retry: 0
    """)
    silent, own, empty = compiled["silent"], compiled["own"], compiled["empty"]
    assert (silent.script, silent.after_script, silent.tags) == (("setup", "x"), ("clean",), ("linux",))
    assert (silent.timeout_seconds, silent.retry_max, silent.retry_when) == (600, 1, ("always",))
    assert silent.artifacts is not None
    assert silent.artifacts.paths == ("log",)
    assert (own.script, own.after_script, own.tags) == (("x",), ("mine",), ("big", "arm"))
    assert (own.timeout_seconds, own.retry_max, own.retry_when) == (1200, 2, ("script_failure",))
    assert own.artifacts is not None
    assert (own.artifacts.paths, own.artifacts.untracked) == ((), True)
    assert (empty.artifacts, empty.tags, empty.retry_max) == (None, ("linux",), 0)


def test_scripts_at_the_top_level_are_defaults(jobs: Jobs, mistakes: Mistakes) -> None:
    assert jobs("before_script: [a]\nafter_script: b\nj: {script: x}")["j"].script == ("a", "x")
    messages = mistakes("before_script: a\ndefault: {before_script: b}\nj: {script: x}")
    assert len(messages) == 1
    assert messages[0].startswith('1:1: before_script: "before_script" stands both here and in "default" (line 2)')


def test_variables_of_the_job_win(jobs: Jobs) -> None:
    compiled = jobs("""
        variables: {A: all, B: all, C: {value: described, description: d}}
        a: {script: x, variables: {B: own, D: {value: 1}}}
        b: {script: x, variables: }
    """)
    assert compiled["a"].variables == {"A": "all", "B": "own", "C": "described", "D": "1"}
    assert compiled["b"].variables == {"A": "all", "B": "all", "C": "described"}


def test_hidden_jobs_are_only_for_anchors(jobs: Jobs) -> None:
    compiled = jobs("""
        .base: &base
          script: &lines [one, two]
          tags: [linux]
        .anything: [1, {2: 3}]
        .unused: {image: ruby, no-such-key: 1}
        job:
          <<: *base
          script: [zero, *lines]
    """)
    assert list(compiled) == ["job"]
    assert (compiled["job"].script, compiled["job"].tags, compiled["job"].line) == (
        ("zero", "one", "two"),
        ("linux",),
        7,
    )


def test_a_job_named_like_a_page_or_a_stage_is_a_job(jobs: Jobs) -> None:
    assert list(jobs("pages: {script: x}\nstage: {script: y}\n'1': {script: z}")) == ["pages", "stage", "1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("just text", '1:1: must be a map of keywords and jobs at the top level, not the text "just text"'),
        ("- a\n- b", "1:1: must be a map of keywords and jobs at the top level, not a list"),
        ("stages: [a]", "1:1: the file has no jobs"),
        (".hidden: {script: x}", "1:1: the file has no jobs"),
        ("stags: [a]\nj: {script: x}", '1:1: stags: unknown key "stags"; did you mean "stages"?'),
        ("varables: {A: b}\nj: {script: x}", '1:1: varables: unknown key "varables"; did you mean "variables"?'),
        ("include: x.yml", '1:10: include: the repository has no file "x.yml"'),
        ("workflow: {rule: []}\nj: {script: x}", '1:12: workflow:rule: unknown key "rule"; did you mean "rules"?'),
        ("workflow: {rules: [{when: manual}]}\nj: {script: x}", '1:27: workflow:rules:when: unknown value "manual"'),
        ("spec: {inputs: {}}\nj: {script: x}", '1:1: spec: "spec" must be in a header of its own'),
        ("default: {stage: x}\nj: {script: x}", '1:11: default:stage: unknown key "stage"'),
        ("default: [x]\nj: {script: x}", "1:10: default: must be a map, not a list"),
        ("stages: []\nj: {script: x}", "1:9: stages: must not be empty"),
        ("stages: build\nj: {script: x}", '1:9: stages: must be a list of strings, not the text "build"'),
        ("stages: [1]\nj: {script: x, stage: '1'}", '1:10: stages: must be a string, not the number "1"'),
        ("j: do it", '1:4: j: must be a map, as every job is, not the text "do it"'),
        ("j:", '1:3: j: must be a map, as every job is, but has no value; give it a "script"'),
        ("1: {script: x}", '1:1: 1: the name of a job must be a string, not the number "1"; write it in quotes: "1"'),
        ("yes: {script: x}", '1:1: yes: the name of a job must be a string, not the boolean "yes"'),
        ("'': {script: x}", "1:1: the name of a job must not be empty"),
        ("stages: [a]\nj: {script: x}", '2:1: j: has no "stage", and the default stage "test" is not among the stages'),
        ("variables: [a]\nj: {script: x}", "1:12: variables: must be a map of names and values, not a list"),
    ],
)
def test_mistakes_of_the_top_level(text: str, expected: str, mistakes: Mistakes) -> None:
    assert any(line.startswith(expected) for line in mistakes(text)), mistakes(text)


def test_all_mistakes_are_reported_together_with_their_lines() -> None:
    text = """\
stages: [build, test]
variables:
  GIT_DEPTH: deep
default:
  retry: 5
build:
  stage: biuld
  scirpt: make
lint:
  script:
    - echo "a": b
    - 7
test:
  idenity: ruby
  script: x
  needs: [biuld, test]
  timeout: soon
  script: y
loose:
  stage: test
  tags: linux
"""
    with pytest.raises(PipelineError) as caught:
        compile_pipeline(text, file="ci/main.yml")
    places = [(m.line, m.column, m.key) for m in caught.value.errors]
    assert places == [
        (5, 10, "default:retry"),
        (7, 10, "build:stage"),
        (8, 3, "build:scirpt"),
        (11, 7, "lint:script"),
        (12, 7, "lint:script"),
        (14, 3, "test:idenity"),
        (16, 11, "test:needs"),
        (16, 18, "test:needs"),
        (17, 12, "test:timeout"),
        (19, 1, "loose"),
        (21, 9, "loose:tags"),
    ]
    assert caught.value.errors[2] == Mistake(
        file="ci/main.yml",
        line=8,
        column=3,
        key="build:scirpt",
        message='unknown key "scirpt"',
        suggestion='did you mean "script"?',
    )
    assert 'ci/main.yml:8:3: build:scirpt: unknown key "scirpt"; did you mean "script"?' in str(caught.value)


def test_five_different_mistakes_are_five_errors_with_their_lines() -> None:
    text = """\
image: {entrypoint: sh}
build:
  stage: build
  scripts: [make]
  script: [make]
circle:
  needs: [around]
  script: [x]
around:
  needs: [circle]
  script: [x]
test:
  needs: [biuld]
  script: [x]
deploy:
  script: [x]
  rules:
    - if: $CI_COMMIT_BRANCH = "main"
"""
    with pytest.raises(PipelineError) as caught:
        compile_pipeline(text, file="f")
    suggestions = {(mistake.line, mistake.key): mistake.suggestion for mistake in caught.value.errors}
    assert suggestions.keys() == {
        (1, "image"),
        (4, "build:scripts"),
        (10, "around:needs"),
        (13, "test:needs"),
        (18, "deploy:rules:if"),
    }, suggestions
    assert suggestions[4, "build:scripts"] == 'did you mean "script"?'
    assert suggestions[13, "test:needs"] == 'did you mean "build"?'
    assert all(suggestions.values())


def test_a_mistake_in_an_anchor_is_one_mistake(mistakes: Mistakes) -> None:
    text = ".t: &t {script: x, imgae: ruby}\n" + "".join(f"j{i}: *t\n" for i in range(5))
    assert len(mistakes(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        '"a\\nb": {script: x, "c\\nd": 1}',
        'stages: ["a\\nb", test]\na: {script: x, stage: ab}',
        '"a\\nb": {script: x}\nb: {script: x, needs: [a-b]}',
        '"a\\nb": {script: x, needs: [c]}\nc: {script: x, needs: ["a\\nb"]}',
    ],
    ids=["key", "stage", "job", "circle"],
)
def test_a_mistake_stays_on_one_line(text: str, mistakes: Mistakes) -> None:
    assert len(mistakes(text)) == 1


def test_a_job_with_the_name_of_a_keyword_is_one_mistake(mistakes: Mistakes) -> None:
    assert mistakes("image: {stage: build, script: make}\njob: {script: x}") == [
        '1:1: image: "image" is a keyword, so it cannot be the name of a job; rename the job'
    ]
    assert compile_pipeline("variables: {script: a}\njob: {script: x}").variables == {"script": "a"}


def test_compilation_stops_after_a_thousand_mistakes(mistakes: Mistakes) -> None:
    messages = mistakes("a:\n  script: x\n" + "".join(f"  scirpt{i}: x\n" for i in range(5000)))
    assert len(messages) == 1001
    assert "gave up after 1000 mistakes" in messages[-1]


@settings(max_examples=300, deadline=None)
@given(st.text())
def test_any_text_compiles_or_gives_mistakes(text: str) -> None:
    _compile_or_refuse(text)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab:-[]{}&*!<>|'\"#%@,? \n\t.", max_size=60))
def test_any_text_that_looks_like_yaml_compiles_or_gives_mistakes(text: str) -> None:
    _compile_or_refuse(text)


EVERY = {
    key for keys in vars(known_keys).values() if isinstance(keys, known_keys.Keys) for key in keys.works + keys.later
}
NAMES = st.sampled_from(sorted(EVERY))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | NAMES
VALUES = st.recursive(LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(NAMES | LEAVES, v, max_size=4))
FILES = st.dictionaries(NAMES | st.sampled_from(["a", "b", ".c"]), st.dictionaries(NAMES, VALUES, max_size=5) | VALUES)


@settings(max_examples=300, deadline=None)
@given(FILES)
def test_any_tree_of_keywords_compiles_or_gives_mistakes(tree: dict[str, object]) -> None:
    _compile_or_refuse(yaml.safe_dump(tree))


def _compile_or_refuse(text: str) -> None:
    refused: PipelineError | None = None
    try:
        pipeline = compile_pipeline(text)
        assert bool(pipeline.jobs) is (pipeline.skipped is None)
    except PipelineError as error:
        refused = error
    if refused is not None:
        lines = max(1, len(text.splitlines())) + 1
        assert refused.errors
        assert all(1 <= mistake.line <= lines and mistake.column >= 1 for mistake in refused.errors)
        assert len(str(refused).splitlines()) == len(refused.errors)
