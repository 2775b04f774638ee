"""Runs git for the standard steps, with the job's credentials, and without trust in files that earlier jobs left.
Credentials are removed from the repository's URL and given to git through a configuration file that only this user can
read, not through an argument, .git/config or the log. git sends them only to the repository's server.

A job chooses the URLs of its submodules and LFS files. If git has more rights than the job, git is *isolated*: it does
not use the home folder and SSH keys of its user, and fetches no submodule from local paths. The system configuration
(`/etc/gitconfig`) is still used, for certificates and proxies."""

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from remuda.lib.dataclass import dataclass
from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.retries import TransientError, retry

_FINAL = re.compile(
    r"authentication failed|access denied|(error:|HTTP) 4(?!08|29)\d\d|not found|could not read (username|password)"
    r"|does not appear to be a git repository|couldn't find remote ref|not our ref|permission denied"
    r"|unadvertised object|does not make sense|transport '\w+' not allowed",
    re.IGNORECASE,
)
"""Error output of git after which a retry does not help."""
_UNREACHABLE = re.compile(
    r"(could not|couldn't|failed to) connect|connection (was )?(refused|reset|timed out|closed)|could not resolve"
    r"|timed out|unreachable|no route to host|empty reply|early EOF|hung up|unexpected disconnect|RPC failed"
    r"|transfer closed|operation too slow|(error:|HTTP) (408|429|5\d\d)|expected flush|bad line length"
    r"|TLS connection|SSL_ERROR_SYSCALL|recv failure|send failure",
    re.IGNORECASE,
)
"""Error output of git when the server cannot be reached or the connection broke."""
_DAMAGED = re.compile(
    r"corrupt|bad object|bad tree|unable to read|packfile .* (cannot|invalid|does not)|missing necessary"
    r"|un(expected|terminated) line in|insufficient permission|unable to (create|write|open|append)"
    r"|cannot (lock|open|update the ref)|file name too long|bad config line|not a git repository|index file",
    re.IGNORECASE,
)
"""Error output of git when the local repository cannot be used."""
_DISK = re.compile(r"no space left|quota exceeded|input/output error|read-only file system", re.IGNORECASE)
"""Error output of git when the disk is full or broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A repository's URL without credentials, its server (`origin`), and the HTTP header with the credentials."""

    url: str
    origin: str
    header: str | None


class Git:
    """Runs git commands in one working directory, with a configuration file of the step and without the job's GIT_*
    variables."""

    def __init__(self, work_dir: Path, config: Path, *, isolated: bool = False) -> None:
        """`config`: a file that `write_config` made. `isolated`: git gets no access to the home folder and SSH keys of
        its user. Raises PlatformError if git is not installed."""
        program = shutil.which("git")
        if program is None:
            raise PlatformError("git is not installed on this machine; install it, or set GIT_STRATEGY: none")
        self._start = [program, "-c", f"include.path={config}"]
        if shutil.which("git-lfs") is None:
            # The machine's configuration may demand the filters of a git-lfs that is not there.
            for setting in ("process=", "smudge=", "clean=", "required=false"):
                self._start += ["-c", f"filter.lfs.{setting}"]
        self._work_dir = work_dir
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        own = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_LFS_SKIP_SMUDGE": "1", "LC_ALL": "C"}
        # GIT_DIR is set because git would search the parent folders if .git is damaged, and use the configuration of a
        # repository that it finds there.
        self._env = inherited | own | {"GIT_DIR": ".git"}
        if isolated:
            # SSH finds the user's keys without HOME, so it is disabled. git-lfs ignores git's protocol.allow.
            self._env |= {"HOME": str(config.parent), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_SSH_COMMAND": "false"}

    def attempt(self, *arguments: str, quiet: bool = False) -> tuple[int, str]:
        """Run git and return its exit code and stderr. Unless `quiet`, stdout and stderr also go to the job log."""
        result = subprocess.run(
            [*self._start, *arguments],
            cwd=self._work_dir,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else None,
            stderr=subprocess.PIPE,
            check=False,
        )
        text = result.stderr.decode(errors="replace")
        if text.strip() and not quiet:
            say(text.rstrip("\n"))
        return result.returncode, text

    def run(self, *arguments: str) -> None:
        """Run git; raises StepError if its exit code is not 0."""
        code, _ = self.attempt(*arguments)
        if code:
            raise StepError(f"git {arguments[0]} failed with exit code {code}")

    def run_with_retries(self, *arguments: str, is_used: bool = False) -> str:
        """Run git and repeat it after transient errors. Returns '' on success, git's stderr after a permanent error.
        Raises PlatformError if the retries are used up. `is_used`: the local repository comes from an earlier job, so
        an error that shows damage of it is permanent."""

        def attempt(_: int) -> str:
            code, text = self.attempt(*arguments, quiet=True)
            if code and is_transient(text) and not (is_used and is_damaged(text)):
                unreachable = is_unreachable(text)
                line = f"exit code {code}: {find_reason(text)}"
                message = f"the server cannot be reached: {line}" if unreachable else line
                raise TransientError(message, unreachable=unreachable)
            if text.strip():
                say(text.rstrip("\n"))
            return text or "git gave no reason" if code else ""

        verb = next(word for word in arguments if word.isalpha())
        return retry(f"git {verb}", attempt)

    def read(self, *arguments: str) -> bytes:
        """Run git and return its stdout. Raises StepError if its exit code is not 0."""
        result = subprocess.run(
            [*self._start, *arguments],
            cwd=self._work_dir,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if result.returncode:
            raise StepError(f"git {arguments[0]} failed: {find_reason(result.stderr.decode(errors='replace'))}")
        return result.stdout

    @contextmanager
    def open_batch(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a git process for a `with` block, such as `cat-file --batch`, and yield it with open pipes for stdin
        and stdout. At the end of the block, closes the pipes and waits for the exit of the process."""
        with subprocess.Popen(
            [*self._start, *arguments],
            cwd=self._work_dir,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            yield process

    def has_commit(self, sha: str) -> bool:
        return self.attempt("cat-file", "-e", f"{sha}^{{commit}}", quiet=True)[0] == 0


def split_credentials(repo_url: str) -> Remote:
    """Move user and password from an HTTP URL to an Authorization header; a URL of another scheme is not changed.
    Raises StepError if the URL is empty."""
    if not repo_url:
        raise StepError("input repo_url: required, but missing")
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


def format_config(remote: Remote, *, instead_of_ssh: bool = False, authority: str = "", isolated: bool = False) -> str:
    """Return the configuration that git reads in addition to the system's and its user's. `instead_of_ssh`: rewrite SSH
    URLs of the server to HTTP. `authority`: a file with CA certificates for the server. `isolated`: forbid SSH, and
    submodules at local paths."""
    lines = ["[safe]", "\tdirectory = *", "[credential]", "\thelper ="]
    lines += ["[gc]", "\tauto = 0", "[maintenance]", "\tauto = false"]
    lines += ["[advice]", "\tdetachedHead = false", "[init]", "\tdefaultBranch = none"]
    lines += ["[core]", "\tfsmonitor = false", "\thooksPath = /dev/null"]
    lines += ["[submodule]", "\trecurse = false", "[fetch]", "\trecurseSubmodules = false"]
    lines += ["[http]", "\tlowSpeedLimit = 1", "\tlowSpeedTime = 300"]
    if isolated:
        # "user": allowed for our own calls, not for submodules.
        lines += ['[protocol "file"]', "\tallow = user", '[protocol "ssh"]', "\tallow = never"]
    elif urlsplit(remote.url).scheme == "file":
        # The repository is on this machine, so its submodules may be, too.
        lines += ['[protocol "file"]', "\tallow = always"]
    if remote.header is not None:
        lines += [f'[http "{remote.origin}"]', f"\textraHeader = {remote.header}"]
    if authority and remote.origin.startswith("https:"):
        lines += [f'[http "{remote.origin}"]', f"\tsslCAInfo = {json.dumps(authority)}"]
    host = urlsplit(remote.origin).hostname
    if instead_of_ssh and host:
        lines += [f'[url "{remote.origin}"]', f"\tinsteadOf = git@{host}:", f"\tinsteadOf = ssh://git@{host}/"]
    return "\n".join(lines) + "\n"


def write_config(folder: Path, remote: Remote, *, instead_of_ssh: bool = False, isolated: bool = False) -> Path:
    """Write git's configuration (`format_config`) to a new file that only this user can read, and return its path.
    `instead_of_ssh`: rewrite SSH URLs of the server to HTTP. `isolated`: forbid SSH and submodules at local paths."""
    path = folder / "config"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        authority = os.environ.get("CI_SERVER_TLS_CA_FILE", "")
        text = format_config(remote, instead_of_ssh=instead_of_ssh, authority=authority, isolated=isolated)
        file.write(text)
    return path


def is_transient(text: str) -> bool:
    """True if a retry may help: git's error output `text` does not show a permanent error."""
    return not _FINAL.search(text)


def is_damaged(text: str) -> bool:
    """True if git's error output `text` shows that the local repository is damaged. False if it also shows an
    unreachable server, or a full or failing disk, which can look like damage."""
    own = "\n".join(line for line in text.splitlines() if not line.startswith("remote:"))
    return bool(_DAMAGED.search(own)) and not is_unreachable(text) and not _DISK.search(own)


def is_unreachable(text: str) -> bool:
    return bool(_UNREACHABLE.search(text))


def find_reason(text: str) -> str:
    """Return the first line of git's error output with `fatal:`, as later ones are consequences; else the last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("fatal:")]
    return fatal[0] if fatal else lines[-1] if lines else "git gave no reason"


def depth_options(depth: int) -> list[str]:
    """Return the arguments that limit `git fetch` to this depth of the history; an empty list for 0 (no limit)."""
    return ["--depth", str(depth)] if depth else []
