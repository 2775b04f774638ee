"""`include:project` over SSH: a real sshd, the key in a real ssh-agent, and git's own setting of the SSH command."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import Clone

from remuda.testing.lab import free_port
from remuda.testing.waiting import wait_until

SSHD = "/usr/sbin/sshd"
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists(SSHD), reason="needs root and openssh-server; make packages installs it"
)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[int]:
    """The port of a server whose only command is `git-upload-pack` for the repositories below `tmp_path`."""
    os.makedirs("/run/sshd", exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    serve = tmp_path / "serve"
    serve.write_text(
        "#!/bin/sh\n"
        f"path=${{SSH_ORIGINAL_COMMAND#git-upload-pack \\'}}\n"
        f"exec git -c safe.directory='*' upload-pack \"{tmp_path}${{path%\\'}}\"\n"
    )
    serve.chmod(0o755)
    port = free_port()
    (tmp_path / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nUsePAM no\nStrictModes no\nPidFile none\n"
        f"AuthorizedKeysFile {tmp_path}/user.pub\nPermitRootLogin prohibit-password\nForceCommand {serve}\n"
    )
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(tmp_path / "config")], stderr=subprocess.DEVNULL)
    try:
        host_key = (tmp_path / "host.pub").read_text()
        (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {host_key}")
        wait_until(lambda: subprocess.run(["ssh-keyscan", "-p", str(port), "127.0.0.1"], capture_output=True).stdout)
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    """The socket of an ssh-agent without keys."""
    socket = str(tmp_path / "agent")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: os.path.exists(socket))
        yield socket
    finally:
        process.kill()
        process.wait()


def test_a_key_of_the_agent_is_used(world: Any, tmp_path: Path, sshd: int, agent: str) -> None:
    work = Clone(tmp_path / "work", world.environment())
    work.git("init", "--quiet", "--initial-branch=main")
    work.commit(**{"jobs.yml": "included: {script: [echo]}\n"})
    work.git("clone", "--quiet", "--bare", str(work.folder), str(tmp_path / "acme" / "ci.git"))
    # ssh takes the home folder from the list of users, not from HOME.
    command = f"ssh -F none -o IdentityFile=none -o UserKnownHostsFile={tmp_path}/known"
    (world.folder / ".gitconfig").write_text(f"[core]\n\tsshCommand = {command}\n")
    shop = Clone(world.folder / "shop", world.environment())
    shop.git("init", "--quiet", "--initial-branch=main")
    shop.git("remote", "add", "origin", f"ssh://root@127.0.0.1:{sshd}/acme/shop.git")
    shop.commit(**{".gitlab-ci.yml": "include: {project: acme/ci, file: jobs.yml}\n"})
    words = ("pipeline", "show", shop.folder, "--allow-fetch", "127.0.0.1/acme/ci")
    refused = world.remuda(*words, SSH_AUTH_SOCK=agent)
    assert refused.code == 2
    assert re.search(r"cannot fetch acme/ci from 127\.0\.0\.1: .*Permission denied", refused.err), refused.err
    subprocess.run(["ssh-add", "-q", str(tmp_path / "user")], env=os.environ | {"SSH_AUTH_SOCK": agent}, check=True)
    result = world.remuda(*words, SSH_AUTH_SOCK=agent)
    assert result.code == 0, result.err
    assert "included" in result.out
