"""Hostile files are refused within seconds, with the reason."""

import time
import tracemalloc

import pytest

from remuda.pipeline import Facts, MemorySources, PipelineError, compile_pipeline

JOB = "j: {script: x}\n"
MANY = ", ".join(map(str, range(317)))
LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20))
REFERENCES = ".a0: {s: [x]}\n" + "".join(
    f".a{i}: {{s: [{', '.join([f'!reference [.a{i - 1}, s]'] * 9)}]}}\n" for i in range(1, 10)
)
BIG = ".big:\n" + "".join(f"  k{i}: 1\n" for i in range(1000))
TEMPLATES = BIG + "".join(f".t{i}: {{extends: .big}}\n" for i in range(5000))
NESTED = [f".r{i}: {{s: {'[' * 90}!reference [.r{i - 1}, s]{']' * 90}}}\n" for i in range(1, 9)]
LONG = "x" * 100_000
MANY_ALIASES = f"[&a {LONG}{', *a' * 3000}]"
LIST = "spec: {inputs: {l: {type: array, default: %s}}}\n---\n"
TEXT = "spec: {inputs: {l: {default: '%s'}}}\n---\n"
RULES = """\
spec:
  inputs:
    l: {type: array, default: %s}
    m: {rules: [{if: "$[[ inputs.l ]] == 'x'", default: y}]}
---
"""
LONG_RULE = "spec: {inputs: {a: {rules: [{if: '%s'}]}}}\n---\nj: {script: x}"
MANY_INPUTS = ", ".join(f"longname{i}: {{default: x}}" for i in range(1000))
DOUBLING = "variables:\n" + "".join(f"  V{i}: $V{i + 1}$V{i + 1}\n" for i in range(60)) + "  V60: x\n"


def use_wrong_names(length: int, others: int) -> str:
    """Return a file that uses misspelt names of inputs, as long as that: one 30,000 times, `others` once."""
    name = "".join(chr(0x100 + i * 7 % 300) for i in range(length))
    declared = "".join(f"    {i}{name}: {{default: x}}\n" for i in range(30))
    wrong = "".join(f"    - $[[ inputs.{name}{i} ]]\n" for i in range(others))
    aliases = "    - *a\n" * 30_000
    return f"spec:\n  inputs:\n{declared}---\nj:\n  script:\n    - &a $[[ inputs.{name} ]]\n{aliases}{wrong}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS + JOB, "more than 100000 values with its aliases unfolded"),
        (REFERENCES + JOB, "more than 500000 values after templates and references are expanded"),
        (TEMPLATES + JOB, "merged files and templates have more than 500000 values"),
        (".r0: {s: [x]}\n" + "".join(NESTED) + JOB, "nested deeper than 200 levels"),
        ("".join(reversed(NESTED)) + ".r0: {s: [x]}\n" + JOB, "nested deeper than 200 levels"),
        ("[" * 500_000, "nested deeper than 100 levels"),
        (f"a: {{script: x, parallel: {{matrix: [{{A: [{MANY}], B: [{MANY}]}}]}}}}", "makes 100489 jobs"),
        (
            "a: {script: x, parallel: {matrix: [" + ", ".join(f"{{A: [{MANY}]}}" for _ in range(200)) + "]}}",
            "makes 63400 jobs",
        ),
        (
            "variables: {V: " + "a" * 60_000 + "!}\na: {script: x, rules: [{if: '$V =~ /((a?){30}){30}b/'}]}",
            "the regular expressions take too long to evaluate",
        ),
        (
            "a: {script: x, rules: ["
            + ", ".join(f"{{if: '$CI_COMMIT_SHA =~ /((0?){{30}}){{30}}x{i}/'}}" for i in range(500))
            + "]}",
            "the regular expressions take too long to evaluate",
        ),
        (
            "a: {script: x, rules: ["
            + ", ".join(f"{{if: '$CI_COMMIT_SHA =~ /((0{{100}}){{100}}){{100}}{i}/'}}" for i in range(500))
            + "]}",
            "at most 1000 in all",
        ),
        ("a: {script: x, coverage: '/(x{900}){900}/'}", "at most 1000 in all"),
        ("include: ../../etc/shadow.yml\n" + JOB, "leaves the repository"),
        ("include: {local: /ci/../../../x.yml}\n" + JOB, "leaves the repository"),
        ("include: {project: g/p, file: ../x.yml}\n" + JOB, "leaves the repository"),
        ("a: {trigger: {include: ../x.yml}}\n", "leaves the repository"),
        ("include: loop.yml\n" + JOB, "in a circle: loop.yml -> pool.yml -> loop.yml"),
        ("include: 'many/*.yml'\n" + JOB, "more than 150 files are included"),
        ("include: $V.yml\n" + JOB, "longer than 65536 characters"),
        (DOUBLING + "workflow: {name: $V0}\n" + JOB, "longer than 65536 characters"),
        (
            LIST % f"[{LONG}]" + "j:\n  script:\n" + "  - a $[[ inputs.l ]]\n" * 300,
            "inputs add more than 1000000 characters",
        ),
        (LIST % f"[{LONG}]" + "".join(f"{i}$[[ inputs.l ]]: 1\n" for i in range(300)), "inputs add more than 1000000"),
        (
            LIST % f"[&a {{{'k' * 900}: x}}{', *a' * 200}]" + "j:\n  script:\n" + "  - a $[[ inputs.l ]]\n" * 30,
            "inputs add more than 1000000",
        ),
        (LIST % MANY_ALIASES + "j: {script: 'a $[[ inputs.l ]]'}", "inputs add more than 1000000"),
        (
            TEXT % ("''" * 10_000) + "j:\n  script:\n" + "  - $[[ inputs.l | posix_escape | truncate(0,1) ]]\n" * 300,
            "inputs add more than 1000000",
        ),
        (
            TEXT % ("$A" * 9000) + "j:\n  script:\n" + "  - $[[ inputs.l | expand_vars ]]\n" * 3,
            "the input is longer than 65536 characters with its variables expanded, or takes too long",
        ),
        *(
            (
                f".t: {{{keys % LONG}}}\n" + "".join(f"j{i}: {{script: x, extends: .t}}\n" for i in range(700)),
                "the jobs have more than 67108864 characters together",
            )
            for keys in (
                "environment: {name: e, url: %s}",
                "artifacts: {name: %s, paths: [a]}",
                "when: manual, manual_confirmation: %s",
                "inputs: {l: {default: x, description: %s}}",
                "needs: [{project: g/p, job: %s, ref: main, artifacts: true}]",
            )
        ),
        (TEXT % "x" + f"j: {{script: '{'$[[' * 300_000} $[[ inputs.none ]]'}}", "cannot read"),
        (use_wrong_names(100, others=1000), "gave up after 1000 mistakes"),
        (use_wrong_names(800, others=400), "there is no input"),
        (
            f"j: {{inputs: {{{MANY_INPUTS}}}, script: ['${{{{ job.inputs.longnames }}}}'"
            + ", '${{ job.inputs.longnames }}'" * 30_000
            + "]}",
            'no input "longnames"',
        ),
        (f"j: {{inputs: {{a: {{default: x}}}}, script: '{'${{' * 300_000} ${{{{ job.inputs.b }}}}'}}", "no input"),
        (
            RULES % MANY_ALIASES + "j: {script: '$[[ inputs.m ]] $[[ inputs.n ]]'}",
            'there is no input "n"',
        ),
        (
            LONG_RULE % ("$[[ inputs.a ]] " * 20_000),
            "at most 10000 characters",
        ),
        *(
            (f"a: {{{keys % MANY_ALIASES}}}", "the jobs have more than 67108864 characters together")
            for keys in (
                "trigger: {project: g/p, inputs: {l: %s}}",
                "trigger: {include: [{local: x.yml, inputs: {l: %s}}]}",
                "script: x, artifacts: {reports: {junit: %s}}",
                "script: x, id_tokens: {T: {aud: %s}}",
                "script: x, inputs: {l: {type: array, default: %s}}",
            )
        ),
        (
            "a0: {script: x, extends: a0}\n" + "".join(f"a{i}: {{extends: a{i - 1}}}\n" for i in range(1, 3000)),
            "gave up after 1000 mistakes",
        ),
    ],
    ids=lambda value: value[:40] if " " in value[:40] else None,
)
def test_a_hostile_file_is_refused_soon(text: str, reason: str) -> None:
    sources = MemorySources(
        {"loop.yml": "include: pool.yml", "pool.yml": "include: loop.yml"}
        | {f"many/{i:03}.yml": f"j{i}: {{script: x}}" for i in range(200)},
        projects={"g/p": {}},
    )
    values = {f"V{i}": f"$V{i + 1}$V{i + 1}" for i in range(60)} | {"V60": "x", "V": "$V0"}
    began = time.process_time()
    with pytest.raises(PipelineError) as caught:
        compile_pipeline(text, facts=Facts(variables=values if "include: $V" in text else {}), sources=sources)
    took = time.process_time() - began
    assert reason in str(caught.value)
    assert took < 10, took  # a file that is not refused early takes minutes


@pytest.mark.parametrize(
    "text",
    [
        LIST % MANY_ALIASES + "j: {script: 'a $[[ inputs.l ]]'}",
        f"j: {{script: x, services: {MANY_ALIASES}}}",
    ],
    ids=["input", "services"],
)
def test_a_long_text_with_many_aliases_takes_little_memory(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PipelineError, match="characters"):
            compile_pipeline(text, facts=Facts())
        assert tracemalloc.get_traced_memory()[1] < 50_000_000  # written out it has 300 MB
    finally:
        tracemalloc.stop()


def test_a_whole_list_is_not_copied_and_counts_less() -> None:
    text = (
        LIST % f"[{LONG}]" + "j: {script: x}\n" + "".join(f"j{i}: {{script: '$[[ inputs.l ]]'}}\n" for i in range(300))
    )
    assert len(compile_pipeline(text).jobs) == 301


def test_many_files_and_patterns_are_bounded() -> None:
    files = {f"folder{i}/file{i}.txt": "" for i in range(40_000)}
    rules = "".join(f"a{i}: {{script: x, rules: [{{exists: ['**/{i}.md']}}]}}\n" for i in range(100))
    with pytest.raises(PipelineError, match="compare more than 1000000 files"):
        compile_pipeline(rules, facts=Facts(files=files))
