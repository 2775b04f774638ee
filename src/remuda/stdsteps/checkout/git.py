"""git as the standard steps call it: with the job's credentials, and without trust in what earlier jobs left.

Credentials come with the repository's address. They are taken out of it before git sees it and reach git through a
configuration file of its own that only this user can read: not in an argument, not in .git/config, not in the log.
They are sent to that one server, whatever repository on it is asked for, so submodules have them too. A call that fails
for a reason that may pass is made again, see `patience`; what git says tells which it is. `checkout` and `submodules`
decide what is fetched.

A job chooses the addresses of its submodules and of its large files. Where it does not have the rights that git has,
git is *isolated*: it does not use logins of its user (home, SSH), and fetches no submodule from this machine's files.
The machine's own configuration (`/etc/gitconfig`) counts, for certificates and proxies.
"""

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
from remuda.stdsteps.common.retries import PassingError, patiently

_FINAL = re.compile(
    r"authentication failed|access denied|(error:|HTTP) 4(?!08|29)\d\d|not found|could not read (username|password)"
    r"|does not appear to be a git repository|couldn't find remote ref|not our ref|permission denied"
    r"|unadvertised object|does not make sense|transport '\w+' not allowed",
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
_DAMAGED = re.compile(
    r"corrupt|bad object|bad tree|unable to read|packfile .* (cannot|invalid|does not)|missing necessary"
    r"|un(expected|terminated) line in|insufficient permission|unable to (create|write|open|append)"
    r"|cannot (lock|open|update the ref)|file name too long|bad config line|not a git repository|index file",
    re.IGNORECASE,
)
"""What git says when the repository here cannot be used."""
_FULL = re.compile(r"no space left|quota exceeded|input/output error|read-only file system", re.IGNORECASE)
"""What it says besides when it is the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A repository's address without its credentials, and the header that carries them."""

    url: str
    origin: str
    header: str | None


class Git:
    """git in one directory, with a configuration of its own."""

    def __init__(self, work_dir: Path, config: Path, *, isolated: bool = False) -> None:
        """`config` lies in a folder that only this user can reach; nothing but git's configuration is in there."""
        program = shutil.which("git")
        if program is None:
            raise PlatformError("git is not installed on this machine; install it, or set GIT_STRATEGY: none")
        self._start = [program, "-c", f"include.path={config}"]
        self._work_dir = work_dir
        kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        own = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_LFS_SKIP_SMUDGE": "1", "LC_ALL": "C"}
        # Said outright: where .git is damaged git would look for a repository in the folders above, and use that one's
        # configuration.
        self._env = kept | own | {"GIT_DIR": ".git"}
        if isolated:
            # SSH finds the user's keys without HOME. git itself may not use it then, git-lfs does not ask.
            self._env |= {"HOME": str(config.parent), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_SSH_COMMAND": "false"}

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

    def patiently(self, *arguments: str, is_own: bool = False) -> str:
        """Run, again while that may help; what git said where the server refuses, nothing where it worked.

        `is_own`: a repository here that is damaged is what an earlier job left, so that trying again does not help.
        """

        def attempt(_: int) -> str:
            code, text = self.attempt(*arguments, quiet=True)
            if code and may_pass(text) and not (is_own and is_damaged(text)):
                away = is_away(text)
                line = f"exit code {code}: {reason(text)}"
                raise PassingError(f"the server cannot be reached: {line}" if away else line, away=away)
            if text.strip():
                say(text.rstrip("\n"))
            return text or "it gave no reason" if code else ""

        verb = next(word for word in arguments if word.isalpha())
        return patiently(f"git {verb}", attempt)

    def read(self, *arguments: str) -> bytes:
        done = subprocess.run(
            [*self._start, *arguments],
            cwd=self._work_dir,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise StepError(f"git {arguments[0]} failed: {reason(done.stderr.decode(errors='replace'))}")
        return done.stdout

    @contextmanager
    def conversation(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """git while it answers what it is asked."""
        with subprocess.Popen(
            [*self._start, *arguments],
            cwd=self._work_dir,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            yield process

    def has(self, sha: str) -> bool:
        return self.attempt("cat-file", "-e", f"{sha}^{{commit}}", quiet=True)[0] == 0


def split_credentials(repo_url: str) -> Remote:
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


def config_text(remote: Remote, *, instead_of_ssh: bool = False, authority: str = "", isolated: bool = False) -> str:
    """What git reads beside its usual configuration; `instead_of_ssh`: SSH addresses of the server mean HTTP ones.

    `authority` is a file with whom to trust about the server.
    """
    lines = ["[safe]", "\tdirectory = *", "[credential]", "\thelper ="]
    lines += ["[gc]", "\tauto = 0", "[maintenance]", "\tauto = false"]
    lines += ["[advice]", "\tdetachedHead = false", "[init]", "\tdefaultBranch = none"]
    lines += ["[core]", "\tfsmonitor = false", "\thooksPath = /dev/null"]
    lines += ["[submodule]", "\trecurse = false", "[fetch]", "\trecurseSubmodules = false"]
    lines += ["[http]", "\tlowSpeedLimit = 1", "\tlowSpeedTime = 300"]
    if isolated:
        # "user": what is called here directly, but no submodule.
        lines += ['[protocol "file"]', "\tallow = user", '[protocol "ssh"]', "\tallow = never"]
    elif urlsplit(remote.url).scheme == "file":
        # Whoever runs jobs has repositories on this machine; so submodules may lie beside them.
        lines += ['[protocol "file"]', "\tallow = always"]
    if remote.header is not None:
        lines += [f'[http "{remote.origin}"]', f"\textraHeader = {remote.header}"]
    if authority and remote.origin.startswith("https:"):
        lines += [f'[http "{remote.origin}"]', f"\tsslCAInfo = {json.dumps(authority)}"]
    host = urlsplit(remote.origin).hostname
    if instead_of_ssh and host:
        lines += [f'[url "{remote.origin}"]', f"\tinsteadOf = git@{host}:", f"\tinsteadOf = ssh://git@{host}/"]
    return "\n".join(lines) + "\n"


def private_config(folder: Path, remote: Remote, *, instead_of_ssh: bool = False, isolated: bool = False) -> Path:
    """The same in a file that only this user can read."""
    path = folder / "config"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        authority = os.environ.get("CI_SERVER_TLS_CA_FILE", "")
        text = config_text(remote, instead_of_ssh=instead_of_ssh, authority=authority, isolated=isolated)
        file.write(text)
    return path


def may_pass(text: str) -> bool:
    """Whether a failure with these words is none for good."""
    return not _FINAL.search(text)


def is_damaged(text: str) -> bool:
    """Whether these words speak of the repository on this machine, and not of the server."""
    own = "\n".join(line for line in text.splitlines() if not line.startswith("remote:"))
    return bool(_DAMAGED.search(own)) and not is_away(text) and not _FULL.search(own)


def is_away(text: str) -> bool:
    """Whether these words speak of a server that is not there."""
    return bool(_AWAY.search(text))


def reason(text: str) -> str:
    """The line that says why: the first fatal one, for what follows tells only what else did not work for it."""
    lines = [line for line in text.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("fatal:")]
    return fatal[0] if fatal else lines[-1] if lines else "it gave no reason"


def shallow(depth: int) -> list[str]:
    """How a fetch is told to cut the history; 0 is not at all."""
    return ["--depth", str(depth)] if depth else []
