"""Compares `remuda run` with gitlab-ci-local on the same pipeline files of ten jobs.

In one file the jobs do almost nothing, so the overhead of each tool counts. In another file jobs take different times
and have `needs`, as in real pipelines; there it also counts whether a job starts as soon as its `needs` are complete.
In the third, the jobs of the first file run in containers, with both tools on one engine. All files have artifacts.

gitlab-ci-local is a program for Node. The first run installs it by npm into a folder of the user's cache, which takes a
minute or two. Without node, npm or rsync (which it calls) the figure is omitted, with the reason; without a container
engine, that of the third file. gitlab-ci-local copies files with containers of its own image, for which an image with
the same programs stands in, since there may be no registry. Nothing here asserts a time. `make bench` calls it; alone:
`python -m tests.bench.local_run`, with words to choose files by their titles (`empty`, `uneven`, `image`).
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from platformdirs import user_cache_path
from tests.bench.http_calls import Show, print_figure
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine, debian_files

VERSION = "4.56.0"
ROUNDS = 7

EMPTY_JOBS = """\
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


UNEVEN_JOBS = """\
stages: [build, test, package, deploy]

.work:
  script:
    - sleep "$SECONDS_OF_WORK"
    - mkdir -p out
    - echo "$CI_JOB_NAME" > "out/$CI_JOB_NAME.txt"
  artifacts:
    paths: [out/]

lint:
  extends: .work
  stage: build
  variables: {SECONDS_OF_WORK: "0.5"}
build-api:
  extends: .work
  stage: build
  variables: {SECONDS_OF_WORK: "0.3"}
build-web:
  extends: .work
  stage: build
  variables: {SECONDS_OF_WORK: "1.5"}
test-api:
  extends: .work
  stage: test
  needs: [build-api]
  variables: {SECONDS_OF_WORK: "1.5"}
test-api-again:
  extends: .work
  stage: test
  needs: [build-api]
  variables: {SECONDS_OF_WORK: "0.5"}
test-web:
  extends: .work
  stage: test
  needs: [build-web]
  variables: {SECONDS_OF_WORK: "0.4"}
package-api:
  extends: .work
  stage: package
  needs: [test-api, test-api-again]
  variables: {SECONDS_OF_WORK: "0.2"}
package-web:
  extends: .work
  stage: package
  needs: [test-web]
  variables: {SECONDS_OF_WORK: "0.2"}
deploy:
  extends: .work
  stage: deploy
  needs: [package-api, package-web, lint]
  variables: {SECONDS_OF_WORK: "0.1"}
report:
  stage: deploy
  needs: [deploy]
  script:
    - ls out
"""
IMAGE_JOBS = f"default: {{image: '{BUSYBOX}'}}\n{EMPTY_JOBS}"
MACHINE_FILES = {"ten empty jobs": EMPTY_JOBS, "ten uneven jobs": UNEVEN_JOBS}
IMAGE_FILES = {"ten image jobs": IMAGE_JOBS}
FILES = MACHINE_FILES | IMAGE_FILES

COPYING_IMAGE = "firecow/gitlab-ci-local-util"
"""The image with which gitlab-ci-local copies files into volumes and out of them. It needs bash and rsync."""
_RSYNC_PACKAGES = ("rsync", "libpopt0", "liblz4-1", "libxxhash0", "libzstd1", "zlib1g", "libssl3")


def install_gitlab_ci_local() -> Path | str:
    """Install gitlab-ci-local if necessary. Returns its program, or the reason why that is not possible."""
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


def create_repository(folder: Path, text: str, environment: dict[str, str]) -> Path:
    """A repository with the pipeline file, and with an origin, which gitlab-ci-local requires."""
    folder.mkdir(parents=True)
    (folder / ".gitlab-ci.yml").write_text(text)
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


def measure(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Seconds of a run, which must succeed."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    took = time.perf_counter() - began
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return took


def local_run(folder: Path, show: Show = print_figure, words: Sequence[str] = tuple(FILES)) -> None:
    """Print the median times of both tools, which run in turns, each with its own clone and home folder. The first run
    of each is not counted."""
    program = install_gitlab_ci_local()
    if isinstance(program, str):
        show("remuda run beside gitlab-ci-local", "-", program)
        return
    commands = {
        "remuda run": [str(Path(sys.executable).with_name("remuda")), "run"],
        "gitlab-ci-local": [str(program)],
    }
    isolated = {"gitlab-ci-local --shell-isolation": [str(program), "--shell-isolation"]}
    for title, text in _chosen(MACHINE_FILES, words).items():
        _compare(folder, title, text, commands | isolated, {}, show)
    if images := _chosen(IMAGE_FILES, words):
        if missing := DockerEngine.missing():
            show("remuda run beside gitlab-ci-local, in containers", "-", f"left out: {missing}")
            return
        with DockerEngine() as engine:
            engine.add_image(COPYING_IMAGE, debian_files(*_RSYNC_PACKAGES))
            for title, text in images.items():
                _compare(folder, title, text, commands, {"DOCKER_HOST": engine.host}, show)


def _chosen(files: Mapping[str, str], words: Sequence[str]) -> dict[str, str]:
    return {title: text for title, text in files.items() if any(word in title for word in words)}


def _compare(
    folder: Path, title: str, text: str, commands: dict[str, list[str]], variables: dict[str, str], show: Show
) -> None:
    times = _measure_in_turns(folder / title, text, commands, variables)
    medians = {name: statistics.median(took[1:]) for name, took in times.items()}
    own = next(iter(medians))
    for name, value in medians.items():
        ratio = "" if name == own else f"remuda run takes {medians[own] / value:.2f} of that"
        show(f"{name}, {title}", f"{value:.2f} s", ratio or f"median of {ROUNDS}")


def _measure_in_turns(
    folder: Path, text: str, commands: dict[str, list[str]], variables: dict[str, str]
) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in commands}
    places: dict[str, tuple[Path, dict[str, str]]] = {}
    for number, name in enumerate(commands):
        home = folder / f"home{number}"
        home.mkdir(parents=True)
        # PYTHONDONTWRITEBYTECODE, for example, would make each run of ours compile all its modules again.
        dropped = ("CI", "DOCKER", "GIT", "REMUDA", "PYTHON", "XDG")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        environment = clean | {"HOME": str(home), "TMPDIR": str(home)} | variables
        places[name] = (create_repository(folder / f"clone{number}", text, environment), environment)
    for _ in range(ROUNDS + 1):
        for name, command in commands.items():
            took[name].append(measure(command, *places[name]))
    return took


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="remuda-bench-") as temporary:
        local_run(Path(temporary), words=sys.argv[1:] or tuple(FILES))
