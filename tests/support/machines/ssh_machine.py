"""A real sshd in a network namespace, with its own keys, for tests that reach a machine over SSH.

It has the files and processes of this host; only the network is separate, so that it can be reached only over SSH.
Needs root.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from remuda.testing.lab import free_port

START_SECONDS = 20.0
PROGRAM = "/usr/sbin/sshd"


class SshMachine:
    """Runs sshd while the `with` block runs. `inside` is a prefix that runs a command in the network namespace."""

    def __init__(self, inside: Sequence[str]) -> None:
        self._inside = list(inside)
        self._folder = Path(tempfile.mkdtemp(prefix="remuda-ssh-"))
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> str:
        """Why sshd cannot run here; empty if it can."""
        if os.geteuid() != 0:
            return "only root can run sshd in a namespace"
        return "" if os.path.exists(PROGRAM) else "not installed: openssh-server; make packages installs it"

    def __enter__(self) -> Self:
        os.makedirs("/run/sshd", exist_ok=True)
        for name in ("host", "user"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._folder / name)]
            subprocess.run(command, check=True)
        (self._folder / "config").write_text(
            f"Port {self._port}\nListenAddress 127.0.0.1\nHostKey {self._folder}/host\nUsePAM no\nStrictModes no\n"
            f"AuthorizedKeysFile {self._folder}/user.pub\nPermitRootLogin prohibit-password\nPidFile none\n"
        )
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._inside, PROGRAM, "-D", "-e", "-f", str(self._folder / "config")], stderr=log
            )
        until = time.monotonic() + START_SECONDS
        while subprocess.run(self.command("true"), check=False, capture_output=True).returncode:
            assert time.monotonic() < until, (self._folder / "log").read_text()
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def command(self, *words: str) -> list[str]:
        """Command line that runs a command on the machine over SSH."""
        options = [
            "-i",
            str(self._folder / "user"),
            "-p",
            str(self._port),
            "-o",
            "BatchMode=yes",
            "-o",
            "LogLevel=ERROR",
        ]
        options += ["-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={self._folder}/known"]
        return [*self._inside, "ssh", *options, "root@127.0.0.1", *words]
