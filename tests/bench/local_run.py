"""`remuda run` beside gitlab-ci-local on the same file: ten jobs whose scripts cost next to nothing, so what counts is
what each tool adds.

gitlab-ci-local is a program for Node. It is installed by npm into a folder of the user's cache the first time, which
takes a minute or two; without node, npm or rsync (which it calls) the figure is left out, with the reason.
Nothing here asserts a time. Called by `make bench`; alone: `python -m tests.bench.local_run`.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from platformdirs import user_cache_path

VERSION = "4.56.0"
ROUNDS = 7
AT_MOST = 0.7

TEN_JOBS = """\
stages: [prepare, build, test, package]
variables:
  GREETING: hello

prepare:
  stage: prepare
  script:
    - mkdir -p out
    - echo "$GREETING" > out/greeting.txt
  artifacts:
    paths: [out/greeting.txt]

.build:
  stage: build
  script:
    - cat out/greeting.txt > "out/$CI_JOB_NAME.txt"
    - echo "built by $CI_JOB_NAME" >> "out/$CI_JOB_NAME.txt"
  artifacts:
    paths: [out/]
api: {extends: .build}
web: {extends: .build}
worker: {extends: .build}

.test:
  stage: test
  script:
    - grep -q "$GREETING" "out/${CI_JOB_NAME#test-}.txt"
test-api: {extends: .test, needs: [api]}
test-web: {extends: .test, needs: [web]}
test-worker: {extends: .test, needs: [worker]}
test-all:
  stage: test
  script:
    - for name in api web worker; do grep -q "built by $name" "out/$name.txt"; done

package:
  stage: package
  script:
    - tar -cf package.tar out
  artifacts:
    paths: [package.tar]
report:
  stage: package
  script:
    - ls out
"""


def installed() -> Path | str:
    """gitlab-ci-local's program, or why there is none."""
    missing = [name for name in ("node", "npm", "rsync") if shutil.which(name) is None]
    if missing:
        return f"left out: {', '.join(missing)} not found; install nodejs, npm and rsync (Debian's packages will do)"
    folder = user_cache_path("remuda-bench") / f"gitlab-ci-local-{VERSION}"
    program = folder / "node_modules/.bin/gitlab-ci-local"
    if not program.exists():
        print(f"installing gitlab-ci-local {VERSION} into {folder} ...", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        quiet = ("--no-audit", "--no-fund", "--loglevel=error")
        command = ["npm", "install", "--prefix", str(folder), *quiet, f"gitlab-ci-local@{VERSION}"]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            return "left out: npm could not install gitlab-ci-local"
    return program


def repository(folder: Path, environment: dict[str, str]) -> Path:
    """A committed work tree with the ten jobs, and an origin, which gitlab-ci-local wants to know."""
    folder.mkdir(parents=True)
    (folder / ".gitlab-ci.yml").write_text(TEN_JOBS)
    (folder / ".gitignore").write_text("out/\npackage.tar\n.gitlab-ci-local/\n")

    def git(*words: str) -> None:
        identity = ("-c", "user.name=Bench", "-c", "user.email=bench@example.com")
        subprocess.run(["git", *identity, *words], cwd=folder, env=environment, check=True)

    git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--quiet", "--message=Ten jobs")
    git("remote", "add", "origin", "https://gitlab.example.com/bench/ten.git")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    return folder


def seconds(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """How long a run takes, which must succeed."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    took = time.perf_counter() - began
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return took


def show_line(name: str, figure: str, note: str = "") -> None:
    print(f"{name:<58} {figure:>14}  {note}", flush=True)


def local_run(folder: Path, show: Callable[[str, str, str], None] = show_line) -> None:
    """Both tools by turns, each in a clone and a home of its own; the first run of each is not counted."""
    program = installed()
    if isinstance(program, str):
        show("remuda run beside gitlab-ci-local", "-", program)
        return
    commands = {
        "remuda run": [str(Path(sys.executable).with_name("remuda")), "run"],
        "gitlab-ci-local": [str(program)],
        "gitlab-ci-local --shell-isolation": [str(program), "--shell-isolation"],
    }
    took: dict[str, list[float]] = {name: [] for name in commands}
    places: dict[str, tuple[Path, dict[str, str]]] = {}
    for number, name in enumerate(commands):
        home = folder / f"home{number}"
        home.mkdir(parents=True)
        # PYTHONDONTWRITEBYTECODE, for one, would make each run of ours compile all its modules anew.
        dropped = ("CI", "GIT", "REMUDA", "PYTHON", "XDG")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        environment = clean | {"HOME": str(home), "TMPDIR": str(home)}
        places[name] = (repository(folder / f"clone{number}", environment), environment)
    for _ in range(ROUNDS + 1):
        for name, command in commands.items():
            took[name].append(seconds(command, *places[name]))
    middle = {name: statistics.median(rounds[1:]) for name, rounds in took.items()}
    for name, value in middle.items():
        show(f"{name}, ten jobs", f"{value:.2f} s", f"median of {ROUNDS}")
    own, *others = middle
    for name in others:
        note = f"at most {AT_MOST}" if name == others[0] else "with a folder for each job, as remuda run has"
        show(f"  ratio of remuda run to {name}", f"{middle[own] / middle[name]:.2f}", note)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="remuda-bench-") as temporary:
        local_run(Path(temporary))
