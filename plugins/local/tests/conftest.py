"""Fixtures: a group with its clean-up for each test (`local_groups`), and a small root file system."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.machines.local_groups_fixture import local_groups as local_groups


@pytest.fixture(scope="session")
def small_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system with an sshd and little else."""
    root = tmp_path_factory.mktemp("small") / "root"
    for folder in ("proc", "sys", "dev", "run", "tmp", "etc/ssh", "root", "bin", "usr/bin", "var/empty"):
        (root / folder).mkdir(parents=True)
    libraries = subprocess.run(["ldd", "/usr/sbin/sshd"], capture_output=True, text=True, check=True).stdout
    for path in ("/usr/sbin/sshd", *re.findall(r"(/\S+) \(", libraries)):
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path[1:])
    shutil.copy(str(shutil.which("busybox")), root / "bin" / "busybox")
    for name in ("sh", "env", "hostname", "cat", "id", "ls", "touch", "sleep", "umount"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\nsshd:x:100:100::/run/sshd:/bin/sh\n")
    (root / "etc" / "shadow").write_text("root:!:1::::::\n")
    return root
