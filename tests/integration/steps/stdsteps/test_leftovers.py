"""Files that a job left in its working directory do not break the next checkout, and its links are not followed.

The checkout runs as a separate process of another user than root, because modes do not limit root.
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
OTHER_UID = 54322
# Only root may be able to read Python itself, so the user changes after all imports.
AS_OTHER_USER = f"""
import os, sys, remuda.stdsteps.__main__ as steps
steps.load()
os.setgroups([])
os.setresgid({OTHER_UID}, {OTHER_UID}, {OTHER_UID})
os.setresuid({OTHER_UID}, {OTHER_UID}, {OTHER_UID})
exec(sys.argv[1])
"""
STEP = "sys.exit(steps.main(['checkout']))"
NEST = "[(os.mkdir('a'), os.chdir('a')) for _ in range({levels})]"
DEEP, DEEP_REPOSITORY = "5,000 folders in each other", "2,000 folders in each other in the repository"
LEFTOVERS: Mapping[str, str | int] = {
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
    *((leftover, "fetch") for leftover in LEFTOVERS if leftover not in (DEEP, DEEP_REPOSITORY)),
    *(
        (leftover, "clone")
        for leftover in ("a folder without any permission", "a repository folder without permissions")
    ),
    *(pytest.param(DEEP, strategy, marks=pytest.mark.long) for strategy in ("fetch", "clone")),
    pytest.param(DEEP_REPOSITORY, "fetch", marks=pytest.mark.long),
]
CheckOut = Callable[..., str]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that any user can enter."""
    top = Path(tempfile.mkdtemp(prefix="remuda-test-", dir="/tmp"))
    for path in (top, top / "work"):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
        os.chown(path, OTHER_UID, OTHER_UID)
    yield top
    remove_tree(top)


@pytest.fixture
def check_out(folder: Path, server: StepServer, commits: list[str]) -> CheckOut:
    """Run the checkout step in the working directory. Returns its output."""

    def run(number: int, **values: Any) -> str:
        refspecs = ["+refs/heads/main:refs/remotes/origin/main"]
        source = {"repo_url": server.repo_url, "sha": commits[number], "ref": "main", "refspecs": refspecs}
        inputs = folder / "inputs.json"
        inputs.write_text(json.dumps(source | {"strategy": "fetch", "depth": 1} | values))
        os.chown(inputs, OTHER_UID, OTHER_UID)
        env = {"PATH": os.environ["PATH"], "REMUDA_INPUTS": str(inputs), "REMUDA_PATIENCE_SECONDS": "1"}
        process = run_as_other_user(STEP, folder / "work", env)
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    return run


def run_as_other_user(code: str, cwd: Path, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", AS_OTHER_USER, code],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def run_in_work(folder: Path, leftover: str | int) -> None:
    """Run a script in the working directory as a job does, or create that many nested folders; below 0 in .git."""
    code = f"os.execvp('sh', ['sh', '-ec', {leftover!r}])"
    if isinstance(leftover, int):
        code = f"os.chdir({('.git' if leftover < 0 else '.')!r}); {NEST.format(levels=abs(leftover))}"
    process = run_as_other_user(code, folder / "work", os.environ)
    assert process.returncode == 0, process.stderr


@pytest.mark.long
@pytest.mark.parametrize(("leftover", "strategy"), CASES)
def test_leftovers_do_not_break_the_next_checkout(
    folder: Path, check_out: CheckOut, commits: list[str], leftover: str, strategy: str
) -> None:
    (folder / "precious").mkdir()
    (folder / "precious/file").write_text("kept")
    os.chown(folder / "precious", OTHER_UID, OTHER_UID)
    check_out(1)
    run_in_work(folder, "mkdir folder; touch folder/file")
    run_in_work(folder, LEFTOVERS[leftover])
    check_out(2, strategy=strategy)
    work = folder / "work"
    assert (work / "file").read_text() == "version 2\n"
    assert sorted(os.listdir(work)) == [".git", "file"]
    assert git(work, "-c", "safe.directory=*", "rev-parse", "HEAD") == commits[2]
    assert (folder / "precious/file").read_text() == "kept"
    assert os.listdir(folder / "precious") == ["file"]


def test_folders_that_a_tool_made_unwritable_cost_no_new_clone(folder: Path, check_out: CheckOut) -> None:
    check_out(2)
    run_in_work(folder, "mkdir -p go/pkg; touch go/pkg/file; chmod 555 go/pkg go")
    assert "starting again in an empty folder" not in check_out(2)
    assert sorted(os.listdir(folder / "work")) == [".git", "file"]


def test_objects_of_other_repositories_are_not_borrowed(folder: Path, check_out: CheckOut) -> None:
    check_out(1)
    run_in_work(folder, "git clone -q --bare . ../other; echo $PWD/../other/objects >.git/objects/info/alternates")
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
    process = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert process.returncode == 75
    assert f"a file system is mounted at {folder}/work/point" in process.stdout
    assert (tmp_path / "precious/file").exists()
