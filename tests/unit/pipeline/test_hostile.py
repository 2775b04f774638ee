"""Files written to do harm: each is refused within a second, with the reason."""

import time

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
DOUBLING = "variables:\n" + "".join(f"  V{i}: $V{i + 1}$V{i + 1}\n" for i in range(60)) + "  V60: x\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS + JOB, "more than 100000 values with its aliases unfolded"),
        (REFERENCES + JOB, "more than 500000 values with everything it takes over"),
        (TEMPLATES + JOB, "laid over each other have more than 500000 values"),
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
            "the regular expressions take too long to judge",
        ),
        (
            "a: {script: x, rules: ["
            + ", ".join(f"{{if: '$CI_COMMIT_SHA =~ /((0?){{30}}){{30}}x{i}/'}}" for i in range(500))
            + "]}",
            "the regular expressions take too long to judge",
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
    assert took < 10, took  # one that is not refused early takes minutes


def test_many_files_and_patterns_are_bounded() -> None:
    files = {f"folder{i}/file{i}.txt": "" for i in range(40_000)}
    rules = "".join(f"a{i}: {{script: x, rules: [{{exists: ['**/{i}.md']}}]}}\n" for i in range(100))
    with pytest.raises(PipelineError, match="compare more than 1000000 files"):
        compile_pipeline(rules, facts=Facts(files=files))
