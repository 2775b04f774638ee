"""How files that a container created get their owner back, in real user namespaces."""

import os
import subprocess
from pathlib import Path

import pytest

from remuda.stdsteps.container.close import GIVE_BACK

AGENT = 60950
"""Id of the user and the group of the agent."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can map user ids")


def make_files(folder: Path, owners: dict[str, int]) -> None:
    for name, owner in owners.items():
        (folder / name).touch()
        os.chown(folder / name, owner, owner)


def owners_of(folder: Path) -> set[tuple[int, int]]:
    return {(path.stat().st_uid, path.stat().st_gid) for path in (folder, *folder.iterdir())}


def give_back(folder: Path, id_map: str) -> None:
    """Run the script as root of a new user namespace with these ids."""
    script = ["sh", "-c", GIVE_BACK, "sh", str(folder), str(AGENT), str(AGENT)]
    holder = ["unshare", "--user", "sh", "-c", "echo ready; read -r end"]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{name}").write_text(id_map)
        enter = ["nsenter", f"--user=/proc/{process.pid}/ns/user", "--setuid=0", "--setgid=0"]
        subprocess.run([*enter, *script], check=True)
        process.communicate(b"end\n")


def test_with_the_ids_of_the_machine(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    make_files(tmp_path, {"root": 0, "other": 1000, "own": AGENT})
    os.chown(tmp_path, 1000, 1000)
    subprocess.run(["sh", "-c", GIVE_BACK, "sh", tmp_path, str(AGENT), str(AGENT)], check=True)
    assert owners_of(tmp_path) == {(AGENT, AGENT)}


def test_with_the_ids_of_a_rootless_engine(tmp_path: Path) -> None:
    make_files(tmp_path, {"root": AGENT, "other": 300999})
    os.chown(tmp_path, 300999, 300999)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and len(folder.parts) > 2:
            folder.chmod(folder.stat().st_mode | 0o011)
    give_back(tmp_path, f"0 {AGENT} 1\n1 300000 65536\n")
    assert owners_of(tmp_path) == {(AGENT, AGENT)}
