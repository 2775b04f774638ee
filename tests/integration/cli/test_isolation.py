"""Jobs of `remuda up` and `remuda run` cannot read or change the platform's own files, and can use the programs and
files of the machine as usual."""

import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.conftest import World
from tests.integration.cli.test_up import Platform

from remuda.localrun.isolation import FIRST_UID
from remuda.steps.policy import hidden_folders

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/usr/bin/bwrap"), reason="needs root, and bubblewrap"
)

SOURCE = Path(__file__).parents[3] / "src"
SYSTEM_PYTHON = Path("/usr/bin/python3")
BWRAP = "/usr/bin/bwrap"
UNPRIVILEGED_UID = 60950

ATTACK = r'''
import glob, os, subprocess, sys

NAMES = ("client.json", "runner.json", "cell.sqlite", "encryption.keys", "journal.sqlite", "remuda.log")
roots = sys.argv[1:]

def read(path):
    """Print READ and the path if the file can be read."""
    try:
        with open(path, "rb") as file:
            if file.read(1):
                print("READ", path, flush=True)
    except OSError:
        pass

def read_all(root):
    for folder, _, names in os.walk(root):
        for name in names:
            if name in NAMES:
                read(os.path.join(folder, name))

for root in roots:
    read_all(root)
for process in glob.glob("/proc/[0-9]*"):
    for root in roots:
        read_all(f"{process}/root{root}")
    try:
        for number in os.listdir(f"{process}/fd"):
            if os.path.basename(os.readlink(f"{process}/fd/{number}")) in NAMES:
                read(f"{process}/fd/{number}")
    except OSError:
        pass
    try:
        with open(f"{process}/environ", "rb") as file:
            if b"REMUDA_ADMIN_TOKEN=" in file.read():
                print("READ", f"{process}/environ", flush=True)
    except OSError:
        pass
again = """
import os, sys
for root in sys.argv[2:]:
    for folder, _, names in os.walk(root):
        for name in names:
            if name in sys.argv[1].split():
                print("READ", os.path.join(folder, name))
"""
for prefix in (["unshare", "-m"], ["unshare", "-Urm"], ["nsenter", "-t", "1", "-m"]):
    undo = f"for i in 1 2 3; do umount -l {' '.join(roots)}; done; exec /usr/bin/python3 -c \"$0\" \"$@\""
    subprocess.run([*prefix, "sh", "-c", undo, again, " ".join(NAMES), *roots], stderr=subprocess.DEVNULL)
print("ATTACKED", flush=True)
'''


def write_attack_script(folder: Path) -> None:
    (folder / "attack.py").write_text(ATTACK)


def files_read(text: str) -> list[str]:
    """Check that the attack script ended, and return the files that it could read."""
    assert "ATTACKED" in text, text
    return re.findall(r"READ \S+", text)


def pipeline_text(*roots: Path) -> str:
    return "look:\n  script:\n    - /usr/bin/python3 attack.py " + " ".join(map(str, roots)) + "\n"


TWO_JOBS = """\
stages: [one, two]
first:
  stage: one
  script:
    - own-tool
    - id -u
    - mkdir out kept && echo made > out/file && echo cached > kept/file
    - cat "$HOME/tool-settings"
  cache: {key: x, paths: [kept]}
  artifacts: {paths: [out]}
second:
  stage: two
  script: [cat out/file kept/file, /usr/bin/python3 attack.py {roots}]
  cache: {key: x, paths: [kept], policy: pull}
"""


LISTEN = r"""
import socket
try:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).bind(("lo", 0))
    print("LISTENS")
except PermissionError:
    print("MAY NOT LISTEN")
with open("/proc/self/status") as file:
    print("".join(line for line in file if line.startswith(("Cap", "NoNewPrivs"))))
"""
DANGEROUS_CAPABILITIES = {
    "DAC_READ_SEARCH": 2,
    "NET_ADMIN": 12,
    "NET_RAW": 13,
    "SYS_MODULE": 16,
    "SYS_RAWIO": 17,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
    "AUDIT_CONTROL": 30,
    "SYSLOG": 34,
    "AUDIT_READ": 37,
    "PERFMON": 38,
    "BPF": 39,
    "CHECKPOINT_RESTORE": 40,
}
"""Linux capabilities, by number, that give access to the traffic, the memory or the files of other processes."""

CHANGE_CODE = r"""
import errno, os, sys
try:
    open(sys.argv[1], "ab").close()
    print("CHANGED the file")
except OSError as error:
    print("NOT CHANGED:", errno.errorcode[error.errno])
for folder in sys.argv[2:]:
    try:
        os.rename(folder, folder + ".gone")
        print("MOVED", folder)
        os.rename(folder + ".gone", folder)
    except OSError as error:
        print("NOT MOVED:", errno.errorcode[error.errno])
with open(os.path.join(os.path.dirname(sys.argv[-1]), "beside"), "w"):
    print("WRITES BESIDE")
"""


@pytest.fixture(scope="module")
def plain_python() -> Iterator[Path]:
    """A Python with Remuda that every user of the machine can read, like one installed by the distribution."""
    if not SYSTEM_PYTHON.exists():
        pytest.skip("needs Debian's Python")
    folder = Path("/tmp") / f"rt-python-{os.getpid()}"
    try:
        subprocess.run([SYSTEM_PYTHON, "-m", "venv", "--without-pip", "--symlinks", folder], check=True)
        (packages,) = folder.glob("lib/python3*/site-packages")
        (packages / "remuda.pth").write_text("\n".join([str(SOURCE), *site.getsitepackages()]) + "\n")
        subprocess.run([folder / "bin/python", "-c", "import msgspec, grpclib, remuda"], check=True)
        yield folder / "bin/python"
    except subprocess.CalledProcessError:
        pytest.skip("Debian's Python cannot use what is installed for this one")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_as_unprivileged_user(world: World, python: Path) -> None:
    """Give all files to an unprivileged user, and start commands as that user from now on."""
    for path in (world.folder, *world.folder.rglob("*")):
        os.chown(path, UNPRIVILEGED_UID, UNPRIVILEGED_UID, follow_symlinks=False)
    world.program = (
        "setpriv",
        f"--reuid={UNPRIVILEGED_UID}",
        f"--regid={UNPRIVILEGED_UID}",
        "--clear-groups",
        python,
        "-m",
        "remuda",
    )


def hide_bubblewrap(world: World, *, replacement: Path = Path(os.devnull)) -> None:
    """Start commands in a mount namespace where `replacement` is mounted over bwrap."""
    hidden = f'mount --bind {replacement} {BWRAP} && exec "$@"'
    world.program = ("unshare", "--mount", "sh", "-c", hidden, "sh", *world.program)


def test_a_job_of_up_reads_nothing_of_the_platform(world: World, pipeline: Any) -> None:
    platform = Platform(world)
    try:
        (world.folder / "tool-settings").write_text("settings are there\n")
        folder = pipeline(TWO_JOBS.replace("own-tool", "/bin/true").replace("{roots}", str(world.folder / "platform")))
        write_attack_script(folder)
        platform.push(folder, "shop")
        logs = [platform.job("log", number, "--follow").out for number in ("1", "2")]
    finally:
        error_output = platform.stop()
    assert files_read(logs[1]) == []
    assert "settings are there" in logs[0]
    assert "made\ncached\n" in logs[1]
    assert "do not see that folder" in platform.output
    assert "WARNING" not in platform.output + error_output


def test_a_job_of_run_reads_nothing_of_the_platform_nor_of_others(world: World, pipeline: Any) -> None:
    other = world.folder / "remuda"
    other.mkdir()
    (other / "client.json").write_text("of remuda up")
    folder = pipeline(pipeline_text(world.temporary, other))
    write_attack_script(folder)
    result = world.remuda("run", folder, "--logs")
    assert files_read(result.out) == [], result.err
    assert result.code == 0
    assert "WARNING" not in result.err


def test_plain_users_jobs_find_programs_but_not_the_platform(world: World, pipeline: Any, plain_python: Path) -> None:
    tools = world.folder / "bin"
    tools.mkdir()
    (tools / "own-tool").write_text("#!/bin/sh\necho the tool runs\n")
    (tools / "own-tool").chmod(0o755)
    (world.folder / "tool-settings").write_text("settings are there\n")
    folder = pipeline(TWO_JOBS.replace("{roots}", str(world.temporary)))
    write_attack_script(folder)
    run_as_unprivileged_user(world, plain_python)
    result = world.remuda("run", folder, "--logs", PATH=f"{tools}:{os.environ['PATH']}")
    assert files_read(result.out) == [], result.err
    for expected in ("the tool runs", str(UNPRIVILEGED_UID), "settings are there", "made", "cached"):
        assert expected in result.out, result.out + result.err
    assert result.code == 0
    assert "WARNING" not in result.err


@pytest.mark.parametrize("isolation", ["bubblewrap", "user"])
def test_plain_user_without_bubblewrap_is_told(world: World, pipeline: Any, plain_python: Path, isolation: str) -> None:
    folder = pipeline(pipeline_text(world.temporary))
    write_attack_script(folder)
    run_as_unprivileged_user(world, plain_python)
    hide_bubblewrap(world)
    refused = world.remuda("run", folder, "--isolation", isolation)
    assert refused.code == 2
    assert f"--isolation {isolation}: " in refused.err
    if isolation == "bubblewrap":
        result = world.remuda("run", folder, "--logs")
        assert result.code == 0
        assert any("client.json" in read for read in files_read(result.out))
        assert "WARNING: jobs can read the platform's own files" in result.err
        assert "bwrap) is not installed" in result.err
        assert "only root can start processes as another user" in result.err
    assert world.is_empty()


def test_roots_jobs_run_as_another_user_without_bubblewrap(world: World, pipeline: Any, plain_python: Path) -> None:
    broken = world.folder / "broken"
    broken.write_text("#!/bin/sh\necho no namespaces for you >&2; exit 1\n")
    broken.chmod(0o755)
    world.folder.chmod(0o711)
    (world.folder / "tmp").chmod(0o711)
    caches = world.folder / "caches"
    folder = pipeline(
        TWO_JOBS.replace("    - own-tool\n", "")
        .replace('    - cat "$HOME/tool-settings"\n', "")
        .replace("{roots}", str(world.temporary))
    )
    write_attack_script(folder)
    world.program = (plain_python, "-m", "remuda")
    hide_bubblewrap(world, replacement=broken)
    result = world.remuda("run", folder, "--logs", "--cache-dir", caches)
    assert result.code == 0, result.out + result.err
    assert files_read(result.out) == [], result.err
    for expected in (str(FIRST_UID), "made", "cached"):
        assert expected in result.out
    assert "WARNING" not in result.err
    assert world.is_empty()


@pytest.mark.parametrize("command", ["up", "run"])
def test_a_job_of_root_does_not_listen_to_others_traffic(world: World, pipeline: Any, command: str) -> None:
    text = run_job(world, pipeline("look:\n  script: [/usr/bin/python3 listen.py]\n"), command, {"listen.py": LISTEN})
    assert "MAY NOT LISTEN" in text, text
    assert re.search(r"NoNewPrivs:\s*1", text), text
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        # `run` prints the log while the job runs, and again at its end.
        (mask,) = set(re.findall(rf"{kind}:\s*([0-9a-f]+)", text))
        assert [name for name, number in DANGEROUS_CAPABILITIES.items() if int(mask, 16) >> number & 1] == [], kind


@pytest.mark.parametrize("command", ["up", "run"])
@pytest.mark.parametrize("installed", ["in the environment", "beside it"])
def test_job_cannot_change_the_code_of_the_platform(world: World, pipeline: Any, command: str, installed: str) -> None:
    environment = world.folder / "installed" / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", environment], check=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    code_folder = packages if installed == "in the environment" else world.folder / "installed" / "src"
    shutil.copytree(SOURCE / "remuda", code_folder / "remuda", ignore=shutil.ignore_patterns("__pycache__"))
    (packages / "all.pth").write_text("\n".join([str(code_folder), *site.getsitepackages()]) + "\n")
    world.program = (environment / "bin/python", "-m", "remuda")
    module = code_folder / "remuda" / "cli" / "up.py"
    assert module.is_file()
    attacked_paths = " ".join(map(str, (module, code_folder / "remuda", environment, environment.parent)))
    folder = pipeline(f"look:\n  script: [/usr/bin/python3 change.py {attacked_paths}]\n")
    text = run_job(world, folder, command, {"change.py": CHANGE_CODE})
    assert "NOT CHANGED: EROFS" in text, text
    assert "MOVED /" not in text, text
    assert "WRITES BESIDE" in text, text
    # `run` prints the log while the job runs and, because of --logs, at the end.
    assert text.count("NOT MOVED: ") == 3 * text.count("WRITES BESIDE"), text


def test_a_hidden_folder_below_the_code_stays_hidden_and_the_job_folder_in_it_is_writable(tmp_path: Path) -> None:
    code, data = tmp_path / "code", tmp_path / "code" / "data"
    (data / "job").mkdir(parents=True)
    (data / "token").touch()
    script = f"ls {data}; touch {data}/job/made && touch {code}/made"
    command = hidden_folders.hide(
        ["sh", "-c", script], hidden=[str(data)], writable=[str(data / "job")], fixed=[str(code)]
    )
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout == "job\n"
    assert "Read-only file system" in result.stderr
    assert (data / "job" / "made").exists()
    assert not (code / "made").exists()


def run_job(world: World, folder: Path, command: str, files: dict[str, str]) -> str:
    """Add these files to the repository, run its only job with `remuda up` or `remuda run`, and return the output."""
    for name, text in files.items():
        (folder / name).write_text(text)
    if command == "run":
        result = world.remuda("run", folder, "--logs")
        return result.out + result.err
    platform = Platform(world)
    try:
        platform.push(folder, "shop")
        return str(platform.job("log", "1", "--follow").out)
    finally:
        platform.stop()


def test_up_warns_that_jobs_can_read_its_files(world: World) -> None:
    # Other users cannot read the program's own files or the data folder here, so jobs cannot run as another user.
    hide_bubblewrap(world)
    platform = Platform(world)
    error_output = platform.stop()
    for text in (platform.output, error_output):
        assert "WARNING: jobs can read the platform's own files" in text
        assert "is closed to others" in text
