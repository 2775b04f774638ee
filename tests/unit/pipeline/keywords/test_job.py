"""The keywords of a job."""

from collections.abc import Callable

import pytest

from remuda.pipeline import Artifacts, JobSpec, Need

Jobs = Callable[[str], dict[str, JobSpec]]
Mistakes = Callable[[str], list[str]]


def test_scripts_are_strings_or_nested_lists(jobs: Jobs) -> None:
    compiled = jobs("a: {before_script: one, script: [two, [three, [four]]], after_script: [five, '']}")
    assert compiled["a"].script == ("one", "two", "three", "four")
    assert compiled["a"].after_script == ("five", "")


def test_a_block_of_lines_stays_one_string(jobs: Jobs) -> None:
    assert jobs("a:\n  script:\n    - |\n      x\n      y\n")["a"].script == ("x\ny\n",)


@pytest.mark.parametrize("when", ["on_success", "on_failure", "always", "manual"])
def test_when(when: str, jobs: Jobs) -> None:
    assert jobs(f"a: {{script: x, when: {when}}}")["a"].when == when


@pytest.mark.parametrize(
    ("keys", "allowed"),
    [
        ("when: on_success", False),
        ("allow_failure: yes", True),
        ("allow_failure: false", False),
        ("when: manual", True),
        ("when: manual, allow_failure: no", False),
        ("when: manual, allow_failure: ", True),
    ],
)
def test_allow_failure(keys: str, allowed: bool, jobs: Jobs) -> None:
    assert jobs(f"a: {{script: x, {keys}}}")["a"].allow_failure is allowed


def test_artifacts_with_all_keys(jobs: Jobs) -> None:
    compiled = jobs("""
        a:
          script: x
          artifacts:
            paths: [out/, "*.log"]
            exclude: [out/tmp]
            untracked: yes
            when: always
            name: $CI_JOB_NAME
            expire_in: 1 week
        b: {script: x, artifacts: {paths: [o], expire_in: never}}
        c: {script: x, artifacts: {expire_in: 3600}}
    """)
    assert compiled["a"].artifacts == Artifacts(
        paths=("out/", "*.log"),
        exclude=("out/tmp",),
        untracked=True,
        when="always",
        name="$CI_JOB_NAME",
        expire_in="1 week",
    )
    assert compiled["b"].artifacts == Artifacts(paths=("o",), expire_in="never")
    assert compiled["c"].artifacts is None


def test_needs_in_all_forms(jobs: Jobs) -> None:
    compiled = jobs("""
        a: {script: x}
        b: {script: x, needs: []}
        c: {script: x, needs: [a, [b], {job: gone, optional: true}]}
        d: {script: x, needs: {job: a, artifacts: false}}
        e: {script: x, needs: }
    """)
    assert compiled["a"].needs is None
    assert compiled["b"].needs == ()
    assert compiled["c"].needs == (Need(job="a"), Need(job="b"), Need(job="gone", optional=True))
    assert compiled["d"].needs == (Need(job="a", artifacts=False),)
    assert compiled["e"].needs is None


@pytest.mark.parametrize(
    ("retry", "most", "when"),
    [
        ("0", 0, ("always",)),
        ("2", 2, ("always",)),
        ("{max: 1}", 1, ("always",)),
        ("{max: 2, when: runner_system_failure}", 2, ("runner_system_failure",)),
        ("{max: 2, when: [script_failure, api_failure]}", 2, ("script_failure", "api_failure")),
        ("{when: always}", 0, ("always",)),
        # GitLab takes each of its failure reasons, also those after which it never retries.
        ("{max: 1, when: [missing_dependency_failure]}", 1, ("missing_dependency_failure",)),
        ("{max: 1, when: trace_size_exceeded}", 1, ("trace_size_exceeded",)),
    ],
)
def test_retry(retry: str, most: int, when: tuple[str, ...], jobs: Jobs) -> None:
    job = jobs(f"a: {{script: x, retry: {retry}}}")["a"]
    assert (job.retry_max, job.retry_when) == (most, when)


@pytest.mark.parametrize(("timeout", "seconds"), [("1h 30m", 5400), ("90 minutes", 5400), ("3600", 3600), ("'60'", 60)])
def test_timeout(timeout: str, seconds: int, jobs: Jobs) -> None:
    assert jobs(f"a: {{script: x, timeout: {timeout}}}")["a"].timeout_seconds == seconds


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("{}", '1:1: a: the job has no "script"; give it the lines to run'),
        ("{script: }", '1:1: a: the job has no "script"'),
        ("{script: []}", "1:13: a:script: must not be empty"),
        ("{script: ''}", "1:13: a:script: must not be empty"),
        ("{script: {x: y}}", "1:13: a:script: must be a list of strings, not a map"),
        ("{script: [true]}", '1:14: a:script: must be a string, not the boolean "true"; write it in quotes: "true"'),
        ("{script: [~]}", "1:14: a:script: must be a string, but has no value"),
        ("{script: [echo a: b]}", '1:14: a:script: must be a string, not a map; a ": " makes it a map'),
        (
            "{script: x, stage: bulid}",
            '1:23: a:stage: unknown stage "bulid"; the stages are: .pre, build, test, deploy, .post;',
        ),
        ("{script: x, stage: 5}", '1:23: a:stage: must be a string, not the number "5"'),
        ("{script: x, when: delayed}", '1:22: a:when: "delayed" requires a "start_in"'),
        ("{script: x, start_in: 5 minutes}", '1:16: a:start_in: "start_in" requires "when: delayed"'),
        ("{script: x, when: on_succes}", '1:22: a:when: unknown value "on_succes"; did you mean "on_success"?'),
        ("{script: x, when: never}", '1:22: a:when: unknown value "never"'),
        ("{script: x, allow_failure: maybe}", '1:31: a:allow_failure: must be true or false, not the text "maybe"'),
        ("{script: x, tags: linux}", '1:22: a:tags: must be a list of strings, not the text "linux"; put it in a list'),
        ("{script: x, timeout: soon}", '1:25: a:timeout: "soon" is not a duration'),
        ("{script: x, timeout: 0}", '1:25: a:timeout: "0" is not a duration'),
        ("{script: x, timeout: [1]}", '1:25: a:timeout: must be a duration such as "1h 30m", not a list'),
        ("{script: x, retry: 3}", "1:23: a:retry: must be a whole number from 0 to 2, not 3"),
        ("{script: x, retry: -1}", "1:23: a:retry: must be a whole number from 0 to 2, not -1"),
        ("{script: x, retry: lots}", '1:23: a:retry: must be a whole number from 0 to 2, not the text "lots"'),
        ("{script: x, retry: {max: 1.5}}", "1:29: a:retry:max: must be a whole number from 0 to 2"),
        (
            "{script: x, retry: {when: scirpt_failure}}",
            '1:30: a:retry:when: unknown value "scirpt_failure"; did you mean "script_failure"?',
        ),
        ("{script: x, parallel: 0}", "1:26: a:parallel: must be a whole number from 1 to 200, not 0"),
        ("{script: x, parallel: 201}", "1:26: a:parallel: must be a whole number from 1 to 200, not 201"),
        ("{script: x, parallel: many}", "1:26: a:parallel: must be a whole number from 1 to 200, not the text"),
        ("{script: x, artifacts: out}", '1:27: a:artifacts: must be a map, not the text "out"'),
        ("{script: x, artifacts: {paths: out}}", "1:35: a:artifacts:paths: must be a list of strings"),
        ("{script: x, artifacts: {when: never}}", '1:34: a:artifacts:when: unknown value "never"'),
        ("{script: x, artifacts: {expire_in: soon}}", '1:39: a:artifacts:expire_in: "soon" is not a duration'),
        ("{script: x, artifacts: {path: [a]}}", '1:28: a:artifacts:path: unknown key "path"; did you mean "paths"?'),
        ("{script: x, needs: b}", '1:23: a:needs: must be a list of jobs, not the text "b"; put it in a list'),
        ("{script: x, needs: [1]}", '1:24: a:needs: must be a string, not the number "1"'),
        ("{script: x, needs: [{artifacts: no}]}", '1:24: a:needs: a need must have a "job"'),
        (
            "{script: x, needs: [{job: b, artifact: no}]}",
            '1:33: a:needs:artifact: unknown key "artifact"; did you mean "artifacts"?',
        ),
        (
            "{script: x, variables: {A: [1]}}",
            "1:31: a:variables:A: must be a string, a number or a boolean, not a list",
        ),
        ("{script: x, 5: y}", '1:16: a:5: a key must be a string, not the number "5"'),
        ("{trigger: {include: []}}", "1:24: a:trigger:include: must not be empty"),
        ("{script: x, parallel: {matrix: [{1A: x}]}}", '1:37: a:parallel:matrix:1A: "1A" is not a name for a variable'),
        ("{script: x, id_tokens: {A B: {aud: x}}}", '1:28: a:id_tokens:A B: "A B" is not a name for a variable'),
        ("{script: x, secrets: {A-B: {vault: a/b}}}", '1:26: a:secrets:A-B: "A-B" is not a name for a variable'),
        (f"{{script: x, resource_group: {'r' * 256}}}", "1:32: a:resource_group: a name has at most 255 characters"),
        (f"{{script: x, environment: {'r' * 256}}}", "1:29: a:environment: a name has at most 255 characters"),
        ("{script: x, zzz: y}", '1:16: a:zzz: unknown key "zzz"; known here: stage, script,'),
    ],
)
def test_mistakes_of_a_job(body: str, expected: str, mistakes: Mistakes) -> None:
    assert any(line.startswith(expected) for line in mistakes(f"a: {body}")), mistakes(f"a: {body}")


@pytest.mark.parametrize("key", ["run", "scirpt", "scripts"])
def test_a_wrong_key_in_place_of_script_is_the_only_mistake(key: str, mistakes: Mistakes) -> None:
    assert len(mistakes(f"a: {{{key}: x}}")) == 1


def test_a_reference_that_leads_nowhere_is_reported_once(mistakes: Mistakes) -> None:
    messages = mistakes("a:\n  script: [x, !reference [.b, script]]\n  tags: !reference [.b, tags]\n")
    assert [line.split(" ")[0] for line in messages] == ["2:15:", "3:9:"]
