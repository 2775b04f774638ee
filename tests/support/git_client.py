"""Runs git for tests, as the user A. Person and without the settings of this machine."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

PERSON = {"NAME": "A. Person", "EMAIL": "person@example.com"}


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; it must succeed. Returns its output without surrounding white space."""
    return Clone(folder).git(*words)


class Clone:
    """A folder in which git runs; it need not be a repository yet. `environment` adds variables for git."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        roles = ("AUTHOR", "COMMITTER")
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{role}_{fact}": value for role in roles for fact, value in PERSON.items()},
            **(environment or {}),
        }

    def run(self, *words: str, ok: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run git, which must succeed or, if `ok` is False, must fail."""
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *words],
            cwd=self.folder,
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode == 0) is ok, done.stderr
        return done

    def git(self, *words: str) -> str:
        """Run git, which must succeed. Returns its output without surrounding white space."""
        return self.run(*words).stdout.strip()

    def write(self, **files: str) -> None:
        for path, text in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)

    def commit(self, message: str = "Change", **files: str) -> str:
        """Write these files and commit everything in the folder. Returns the hash of the commit."""
        self.write(**files)
        self.run("add", "-A")
        self.run("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def push(self, *words: str) -> None:
        self.run("push", "--quiet", "origin", *words)
