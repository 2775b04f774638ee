"""A working copy in which the real git runs, cut off from the settings of the machine and of its user."""

import os
import subprocess
from pathlib import Path


class Clone:
    """A folder to run git in; it need not be a repository yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, *args: str, ok: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """git with these arguments, which must succeed or must not."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "A. Person",
            "GIT_AUTHOR_EMAIL": "person@example.com",
            "GIT_COMMITTER_NAME": "A. Person",
            "GIT_COMMITTER_EMAIL": "person@example.com",
        }
        done = subprocess.run(
            ["git", *args],
            cwd=self.folder,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode == 0) is ok, done.stderr
        return done

    def commit(self, message: str = "Change", **files: str) -> str:
        """A commit of everything in the folder, with these files in it; its name."""
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        self.run("add", "-A")
        self.run("commit", "--quiet", "--allow-empty", "-m", message)
        return self.run("rev-parse", "HEAD").stdout.strip()

    def push(self, *args: str) -> None:
        """A push to origin."""
        self.run("push", "--quiet", "origin", *args)
