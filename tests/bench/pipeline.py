"""Measures the compilation of a large pipeline file with includes, templates, matrices, rules and needs.

Nothing here asserts a time. `make bench` calls it; alone: `python -m tests.bench.pipeline`.
"""

import time

from tests.bench.http_calls import Show, print_figure

from remuda.pipeline import Facts, MemorySources, compile_pipeline

JOBS = 2000
SIZES = (500, 1000, JOBS, 4000)
# Jobs of one included file: two matrices of twenty, nine single jobs, and one job that needs the matrices.
JOBS_PER_FILE = 50

MAIN = """
stages: [build, test, deploy]
include: ci/*.yml
default:
  tags: [linux]
  retry: {max: 1, when: runner_system_failure}
variables:
  GIT_DEPTH: 20
workflow:
  rules:
    - if: $CI_COMMIT_BRANCH
.base:
  image: debian
  before_script: [echo begin]
  artifacts: {paths: [out/], expire_in: 1 week}
  rules:
    - if: $CI_COMMIT_TAG =~ /^v\\d+/
      when: manual
    - if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH && $CI_PIPELINE_SOURCE != "schedule"
    - changes: ["src/**/*.py"]
"""
PART = """
.part {n}:
  extends: .base
  variables: {{PART: "{n}"}}
build {n}:
  extends: .part {n}
  stage: build
  parallel:
    matrix:
      - SYSTEM: [linux, darwin, windows, freebsd]
        CPU: [amd64, arm64, riscv, s390x, ppc]
  script: [make "$SYSTEM" "$CPU"]
test {n}:
  extends: .part {n}
  parallel:
    matrix:
      - SYSTEM: [linux, darwin, windows, freebsd]
        SUITE: [unit, contract, integration, system, bench]
  needs:
    - job: build {n}
      parallel:
        matrix: [{{SYSTEM: linux, CPU: amd64}}]
  script:
    - !reference [.base, before_script]
    - make test "$SUITE"
"""
SINGLE = """
check {n} {m}:
  extends: .part {n}
  needs: ["build {n}: [linux, amd64]"]
  cache: {{key: k{m}, paths: [vendor/]}}
  script:
    - ./check {m}
    - ./check {m} --again
"""
LAST = """
deploy {n}:
  extends: .part {n}
  stage: deploy
  needs: [test {n}, {{job: build {n}, artifacts: false}}]
  environment: review/$CI_COMMIT_REF_SLUG
  script: ./deploy
"""


def included_files(jobs: int) -> dict[str, str]:
    """Included files with so many jobs in total, by path."""
    return {
        f"ci/{n:03}.yml": PART.format(n=n) + "".join(SINGLE.format(n=n, m=m) for m in range(9)) + LAST.format(n=n)
        for n in range(jobs // JOBS_PER_FILE)
    }


def measure(jobs: int, *, tries: int = 3) -> float:
    """Seconds of the fastest of a few compilations of a file with so many jobs."""
    sources = MemorySources(included_files(jobs))
    facts = Facts(changed_files=frozenset({"src/a/b.py"}), files={"src/a/b.py": "1"})
    took: list[float] = []
    for _ in range(tries):
        began = time.perf_counter()
        pipeline = compile_pipeline(MAIN, facts=facts, sources=sources)
        took.append(time.perf_counter() - began)
        if len(pipeline.jobs) != jobs:
            raise AssertionError(f"{len(pipeline.jobs)} jobs, not {jobs}")
    return min(took)


def compile_large(show: Show = print_figure) -> None:
    """Print the time for a large file, and the time per job for files of several sizes."""
    took = {jobs: measure(jobs) for jobs in SIZES}
    show(f"compile a pipeline of {JOBS} jobs", f"{took[JOBS]:.3f} s", "matrices in included files; at most 1 s")
    for jobs, spent in took.items():
        show(f"  a job of {jobs}", f"{spent / jobs * 1e6:.0f} us", f"{spent:.3f} s in all")


if __name__ == "__main__":
    compile_large()
