"""What a job left in its working directory does not break the next one, and leads nobody anywhere else.

The checkout runs as its own process, as another user than root: modes mean nothing to root.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import git
from tests.support.servers.step_server import StepServer

from remuda.lib.safe_paths import remove_tree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
SOMEBODY = 54322
# Python itself may lie where only root can read it.
AS_SOMEBODY = f"""
import os, sys, remuda.stdsteps.__main__ as steps
steps.load()
os.setgroups([])
os.setresgid({SOMEBODY}, {SOMEBODY}, {SOMEBODY})
os.setresuid({SOMEBODY}, {SOMEBODY}, {SOMEBODY})
exec(sys.argv[1])
"""
STEP = "sys.exit(steps.main(['checkout']))"
NEST = "[(os.mkdir('a'), os.chdir('a')) for _ in range({levels})]"
DEEP, DEEP_REPOSITORY = "5,000 folders in each other", "2,000 folders in each other in the repository"
LEFT: Mapping[str, str | int] = {
    "a folder without write permission": "mkdir -p left/deeper; touch left/deeper/file; chmod 500 left/deeper left",
    "a folder without any permission": "mkdir -p left/deeper; touch left/deeper/file; chmod 000 left/deeper left",
    "a working directory without write permission": "touch left; chmod 500 .",
    "a tracked file in a folder without permission": "rm folder/file; mkdir folder/file; chmod 000 folder/file folder",
    "a repository without permissions": "touch left; chmod 000 .git/objects/* .git/objects .git/refs/* .git/refs",
    "a repository folder without permissions": "touch left; chmod 000 .git",
    "a damaged repository": "touch left; echo nonsense >.git/packed-refs; rm -rf .git/refs/*",
    "a pipe in the repository": "touch left; rm .git/HEAD; mkfifo .git/HEAD",
    "a link in the repository": "touch left; rm -rf .git/refs; ln -s ../../precious .git/refs",
    "a link in the place of a folder": "touch left; rm -rf folder; ln -s ../precious folder",
    DEEP: 5000,
    DEEP_REPOSITORY: -2000,
}
CASES = [
    *((what, "fetch") for what in LEFT if what not in (DEEP, DEEP_REPOSITORY)),
    *((what, "clone") for what in ("a folder without any permission", "a repository folder without permissions")),
    *(pytest.param(DEEP, strategy, marks=pytest.mark.long) for strategy in ("fetch", "clone")),
    pytest.param(DEEP_REPOSITORY, "fetch", marks=pytest.mark.long),
]
CheckOut = Callable[..., str]


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that any user can reach."""
    top = Path(tempfile.mkdtemp(prefix="remuda-test-", dir="/tmp"))
    for path in (top, top / "work"):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
        os.chown(path, SOMEBODY, SOMEBODY)
    yield top
    remove_tree(top)


@pytest.fixture
def check_out(folder: Path, server: StepServer, commits: list[str]) -> CheckOut:
    """Run the step in the working directory; what it says."""

    def run(number: int, **values: Any) -> str:
        refspecs = ["+refs/heads/main:refs/remotes/origin/main"]
        wanted = {"repo_url": server.repo_url, "sha": commits[number], "ref": "main", "refspecs": refspecs}
        inputs = folder / "inputs.json"
        inputs.write_text(json.dumps(wanted | {"strategy": "fetch", "depth": 1} | values))
        os.chown(inputs, SOMEBODY, SOMEBODY)
        env = {"PATH": os.environ["PATH"], "REMUDA_INPUTS": str(inputs), "REMUDA_PATIENCE_SECONDS": "1"}
        done = as_somebody(STEP, folder / "work", env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def as_somebody(code: str, cwd: Path, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", AS_SOMEBODY, code],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def leave(folder: Path, what: str | int) -> None:
    """What a job does in its working directory: a script, or so many folders, below 0 in the repository."""
    code = f"os.execvp('sh', ['sh', '-ec', {what!r}])"
    if isinstance(what, int):
        code = f"os.chdir({('.git' if what < 0 else '.')!r}); {NEST.format(levels=abs(what))}"
    done = as_somebody(code, folder / "work", os.environ)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize(("what", "strategy"), CASES)
def test_leftovers_do_not_break_the_next_checkout(
    folder: Path, check_out: CheckOut, commits: list[str], what: str, strategy: str
) -> None:
    (folder / "precious").mkdir()
    (folder / "precious/file").write_text("kept")
    os.chown(folder / "precious", SOMEBODY, SOMEBODY)
    check_out(1)
    leave(folder, "mkdir folder; touch folder/file")
    leave(folder, LEFT[what])
    check_out(2, strategy=strategy)
    work = folder / "work"
    assert (work / "file").read_text() == "version 2\n"
    assert sorted(os.listdir(work)) == [".git", "file"]
    assert git(work, "-c", "safe.directory=*", "rev-parse", "HEAD") == commits[2]
    assert (folder / "precious/file").read_text() == "kept"
    assert os.listdir(folder / "precious") == ["file"]


def test_folders_that_a_tool_made_unwritable_cost_no_new_clone(folder: Path, check_out: CheckOut) -> None:
    check_out(2)
    leave(folder, "mkdir -p go/pkg; touch go/pkg/file; chmod 555 go/pkg go")
    assert "starting again in an empty folder" not in check_out(2)
    assert sorted(os.listdir(folder / "work")) == [".git", "file"]


def test_objects_of_other_repositories_are_not_borrowed(folder: Path, check_out: CheckOut) -> None:
    check_out(1)
    leave(folder, "git clone -q --bare . ../other; echo $PWD/../other/objects >.git/objects/info/alternates")
    check_out(2)
    assert not (folder / "work/.git/objects/info/alternates").exists()


def test_a_checkout_refuses_to_clean_what_is_mounted(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    (folder / "work/point").mkdir()
    inputs = folder / "inputs.json"
    inputs.write_text(json.dumps({"strategy": "empty"}))
    step = f"cd {folder}/work; REMUDA_INPUTS={inputs} exec {sys.executable} -m remuda.stdsteps checkout"
    script = f"set -e; mount --make-rprivate /; mount --bind {tmp_path}/precious {folder}/work/point; {step}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 75
    assert f"a file system is mounted at {folder}/work/point" in done.stdout
    assert (tmp_path / "precious/file").exists()
