"""Brings the job's commit into the working directory.

Credentials come with the repository's address. They are taken out of it before git sees it and reach git through a
configuration file of its own that only this user can read: not in an argument, not in .git/config, not in the log.
A fetch that fails for a reason that may pass is tried again, see `patience`; what git says tells which it is. Which
commit, and how deep, the inputs say.

A repository that is found in the working directory is not trusted: an earlier job may have left anything in it. Its
objects are used, but no configuration, hook or attribute of it is ever seen by git.
"""

import base64
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from remuda.stdsteps.errors import PlatformError, StepError
from remuda.stdsteps.inputs import Inputs
from remuda.stdsteps.patience import PassingError, patiently
from remuda.stdsteps.speech import say

STRATEGIES = ("fetch", "clone", "none", "empty")
ALL_REFS = ["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"]
LEFT_BY_A_KILLED_GIT = ("index.lock", "shallow.lock", "HEAD.lock", "config.lock")
COMMANDING = ("config", "config.worktree", "commondir", "hooks", "info")
"""What can make git run programs or read its configuration from somewhere else."""

_FINAL = re.compile(
    r"authentication failed|access denied|(error:|HTTP) 4(?!08|29)\d\d|not found|could not read (username|password)"
    r"|does not appear to be a git repository|couldn't find remote ref|not our ref|permission denied"
    r"|unadvertised object|does not make sense",
    re.IGNORECASE,
)
"""What git says when trying again does not help."""
_AWAY = re.compile(
    r"(could not|couldn't|failed to) connect|connection (was )?(refused|reset|timed out|closed)|could not resolve"
    r"|timed out|unreachable|no route to host|empty reply|early EOF|hung up|unexpected disconnect|RPC failed"
    r"|transfer closed|operation too slow|(error:|HTTP) (408|429|5\d\d)|expected flush|bad line length"
    r"|TLS connection|SSL_ERROR_SYSCALL|recv failure|send failure",
    re.IGNORECASE,
)
"""What git says when the server is not there, or was there no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A repository's address without its credentials, and the header that carries them."""

    url: str
    origin: str
    header: str | None


def run(inputs: Inputs) -> None:
    """The step."""
    strategy = inputs.one_of("strategy", STRATEGIES)
    repo_url = inputs.text("repo_url", "")
    sha, ref = inputs.text("sha", ""), inputs.text("ref", "")
    refspecs, depth = inputs.texts("refspecs", []) or ALL_REFS, inputs.number("depth", 0)
    clean_flags = inputs.texts("clean_flags", ["-ffdx"])
    inputs.done()
    work_dir = Path.cwd()
    if strategy == "none":
        say("Skipping Git repository setup")
        return
    if strategy in ("empty", "clone"):
        empty(work_dir)
    if strategy == "empty":
        say("Skipping Git repository setup and creating an empty build directory")
        return
    if not re.fullmatch(r"[0-9a-fA-F]{8,64}", sha):
        raise StepError(f"input sha: a commit of 8 or more hex digits is needed, not {sha!r}")
    remote = split_credentials(repo_url)
    with tempfile.TemporaryDirectory(prefix="remuda-git-") as private:
        git = Git(work_dir, private_config(Path(private), remote))
        prepare(git, work_dir, remote)
        say(f"Fetching changes with git depth set to {depth}..." if depth else "Fetching changes...")
        fetch(git, refspecs, depth)
        if not git.has(sha):
            fetch_commit(git, sha, depth)
        say(f"Checking out {sha[:8]} as detached HEAD (ref is {ref})...")
        git.run("checkout", "-f", "-q", "--detach", sha)
        if clean_flags:
            git.run("clean", *clean_flags)


class Git:
    """git in one directory, with a configuration of its own."""

    def __init__(self, work_dir: Path, config: Path) -> None:
        program = shutil.which("git")
        if program is None:
            raise PlatformError("git is not installed on this machine; install it, or set GIT_STRATEGY: none")
        self._start = [program, "-c", f"include.path={config}"]
        self._work_dir = work_dir
        kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        self._env = kept | {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C"}

    def attempt(self, *arguments: str, quiet: bool = False) -> tuple[int, str]:
        """Exit code and what git said on stderr; that goes to the log too."""
        done = subprocess.run(
            [*self._start, *arguments],
            cwd=self._work_dir,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else None,
            stderr=subprocess.PIPE,
            check=False,
        )
        text = done.stderr.decode(errors="replace")
        if text.strip() and not quiet:
            say(text.rstrip("\n"))
        return done.returncode, text

    def run(self, *arguments: str) -> None:
        code, _ = self.attempt(*arguments)
        if code:
            raise StepError(f"git {arguments[0]} failed with exit code {code}")

    def has(self, sha: str) -> bool:
        return self.attempt("cat-file", "-e", f"{sha}^{{commit}}", quiet=True)[0] == 0


def split_credentials(repo_url: str) -> Remote:
    """Address and credentials apart."""
    if not repo_url:
        raise StepError("input repo_url: needed, but not given")
    parts = urlsplit(repo_url)
    if parts.scheme not in ("http", "https"):
        return Remote(url=repo_url, origin="", header=None)
    userinfo, _, host = parts.netloc.rpartition("@")
    header = None
    if userinfo:
        user, _, password = userinfo.partition(":")
        pair = f"{unquote(user)}:{unquote(password)}".encode()
        header = f"Authorization: Basic {base64.b64encode(pair).decode()}"
    url = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    return Remote(url=url, origin=f"{parts.scheme}://{host}/", header=header)


def private_config(folder: Path, remote: Remote) -> Path:
    """What git reads beside its usual configuration."""
    lines = ["[safe]", "\tdirectory = *", "[credential]", "\thelper =", "[gc]", "\tauto = 0"]
    lines += ["[advice]", "\tdetachedHead = false", "[init]", "\tdefaultBranch = none"]
    lines += ["[core]", "\tfsmonitor = false", "\thooksPath = /dev/null"]
    lines += ["[http]", "\tlowSpeedLimit = 1", "\tlowSpeedTime = 300"]
    if remote.header is not None:
        lines += [f'[http "{remote.origin}"]', f"\textraHeader = {remote.header}"]
    path = folder / "config"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def empty(folder: Path) -> None:
    """Remove everything in a folder, but not the folder: it is the job's working directory."""
    for path in folder.iterdir():
        remove(path)


def remove(path: Path) -> None:
    """Whatever it is; a link, not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def prepare(git: Git, work_dir: Path, remote: Remote) -> None:
    """A repository with the right remote, whatever an earlier job left here."""
    inside = work_dir / ".git"
    if inside.is_symlink() or not inside.is_dir():
        inside.unlink(missing_ok=True)
        inside.mkdir()
    for name in (*LEFT_BY_A_KILLED_GIT, *COMMANDING):
        remove(inside / name)
    url = remote.url.replace("\\", "\\\\").replace('"', '\\"')
    (inside / "config").write_text(
        f'[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote "origin"]\n\turl = "{url}"\n'
    )
    git.run("init", "--quiet", "--template=")


def fetch(git: Git, refspecs: list[str], depth: int) -> None:
    """The wanted refs."""
    options = ["--no-recurse-submodules", "--prune", "--quiet", "--force"]
    if text := fetch_patiently(git, *options, *shallow(depth), "origin", *refspecs):
        raise StepError(f"git fetch failed, the server refused: {last_line(text)}")


def fetch_commit(git: Git, sha: str, depth: int) -> None:
    """The refs do not lead to the commit: the branch has moved on, or the history is cut too short."""
    if fetch_patiently(git, "--quiet", *shallow(depth), "origin", sha) and depth:
        fetch_patiently(git, "--quiet", "--unshallow", "origin")
    if not git.has(sha):
        raise StepError(f"commit {sha} is not in the repository; it may have been removed by a forced push")


def fetch_patiently(git: Git, *arguments: str) -> str:
    """Fetch, again while that may help; what git said where the server refuses, nothing where it worked."""

    def attempt(_: int) -> str:
        code, text = git.attempt("fetch", *arguments, quiet=True)
        if code and may_pass(text):
            away = is_away(text)
            line = f"exit code {code}: {last_line(text)}"
            raise PassingError(f"the server cannot be reached: {line}" if away else line, away=away)
        if text.strip():
            say(text.rstrip("\n"))
        return text or "it gave no reason" if code else ""

    return patiently("git fetch", attempt)


def may_pass(text: str) -> bool:
    """Whether a failure with these words is none for good."""
    return not _FINAL.search(text)


def is_away(text: str) -> bool:
    """Whether these words speak of a server that is not there."""
    return bool(_AWAY.search(text))


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it gave no reason"


def shallow(depth: int) -> list[str]:
    return ["--depth", str(depth)] if depth else []
