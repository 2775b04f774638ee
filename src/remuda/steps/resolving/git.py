"""Step packages in git repositories, over HTTP: finds the commit of a version, and writes that commit's files.

A version is a full commit hash, else a tag, a branch or an abbreviated hash. If a tag and a branch of this name have
different commits, the version is refused: otherwise somebody who may only create branches could replace the step of a
tag, or the other way round. git runs without the user's configuration, which jobs can write, and gets credentials
through its environment only. Files are written from the repository's objects, without checkout: attributes and filters
have no effect; submodules and LFS are left out."""

import asyncio
import base64
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO
from urllib.parse import SplitResult, unquote

from remuda.lib.dataclass import dataclass
from remuda.lib.processes import reap
from remuda.steps.language.values import Reference, ReferenceKind
from remuda.steps.process.marks import start_unmarked
from remuda.steps.resolving.errors import ResolveError, TemporaryResolveError, trust_error
from remuda.steps.resolving.retrying import PATIENCE_SECONDS, PROXIES
from remuda.steps.resolving.values import LARGEST_BYTES, MOST_FILES, git_address

SHORTEST_COMMIT = 8
ASK_SECONDS, FETCH_SECONDS = 60.0, 600.0
GIT_READS = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", *PROXIES, *(name.upper() for name in PROXIES))
_HEX = re.compile(r"[0-9a-f]+")
_WHOLE = (40, 64)
_LINK = "120000"
LONGEST_LINK = 4095
_CHUNK = 256 * 1024
_FINAL = re.compile(
    r"authentication failed|access denied|(error:|HTTP) 4(?!08|29)\d\d|not found|could not read (username|password)"
    r"|does not appear to be a git repository|couldn't find remote ref|permission denied"
    r"|not valid: is this a git repository|protocol '\w+' is not supported|malformed|bad/illegal format",
    re.IGNORECASE,
)
_REFUSED_COMMIT = re.compile(r"not our ref|unadvertised object|couldn't find remote ref|no such remote ref", re.I)
_ASKS_FOR_CREDENTIALS = re.compile(r"could not read (username|password)|authentication failed|error: 40[13]", re.I)
_CERTIFICATE = re.compile(r"certificate|SSL CA cert|CAfile|unable to get local issuer|self.signed", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    address: SplitResult
    url: str
    credentials: str
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tip:
    """What the server says about a version: its commit, whether it is a tag, and the repository's object format."""

    commit: str = ""
    """Empty if no tag or branch has the name of the version, or a commit that begins with it."""
    is_tag: bool = False
    is_sha256: bool = False
    """The object format of the repository."""


def repository(url: str, env: Mapping[str, str]) -> Repository:
    address, credentials = git_address(url)
    return Repository(address=address, url=address.geturl(), credentials=credentials, env=env)


def is_whole_commit(version: str) -> bool:
    return len(version) in _WHOLE and bool(_HEX.fullmatch(version))


def longest_silence(reference: Reference) -> float:
    """Return after how many seconds, about, the fetch of a step fails if its server never answers. For a whole commit
    git asks no question first, so the limit of a fetch counts."""
    is_fetched_at_once = reference.kind is ReferenceKind.GIT and is_whole_commit(reference.version)
    return FETCH_SECONDS if is_fetched_at_once else PATIENCE_SECONDS


def may_be_commit(version: str) -> bool:
    return SHORTEST_COMMIT <= len(version) <= max(_WHOLE) and bool(_HEX.fullmatch(version))


async def ask(where: Repository, version: str) -> Tip:
    """Ask the server for the commit of a tag, a branch, or the abbreviated hash of a tag's or branch's commit.
    `Tip.commit` is empty if none matches. Raises ResolveError if the version is invalid or ambiguous, or git fails."""
    if not version or version.startswith("-") or any(ord(letter) <= 32 for letter in version):
        raise ResolveError(f"{where.url}: {version!r} is not a version; give a tag, a branch or a commit")
    tag, branch = _ref_names(version)
    patterns = [name for name in (tag, tag and f"{tag}^{{}}", branch) if name]
    if may_be_commit(version):
        patterns = ["refs/tags/*", "refs/heads/*"]
    text = await _git(where, ["ls-remote", "--", where.url, *patterns], seconds=ASK_SECONDS)
    refs = {name: commit for commit, _, name in (line.partition("\t") for line in text.decode().splitlines())}
    return choose_tip(refs, version)


def choose_tip(refs: Mapping[str, str], version: str) -> Tip:
    """Choose a version's commit from the server's `refs` (hashes by name): tag or branch of this name, else abbreviated
    hash. `Tip.commit` is empty if none matches. Raises ResolveError if a tag and a branch of that name differ."""
    is_sha256 = any(len(commit) == max(_WHOLE) for commit in refs.values())
    tag, branch = _ref_names(version)
    of_tag, of_branch = refs.get(f"{tag}^{{}}") or refs.get(tag), refs.get(branch)
    if of_tag and of_branch and of_tag != of_branch:
        raise ResolveError(
            f"{version} is the name of a tag and of a branch, which lead to different commits; write {tag} or "
            f"{branch}, or the whole commit"
        )
    if commit := of_tag or of_branch:
        return Tip(commit=commit, is_tag=bool(of_tag), is_sha256=is_sha256)
    if may_be_commit(version):
        # Of an annotated tag only the commit counts.
        commits = {refs.get(f"{name}^{{}}", commit) for name, commit in refs.items()}
        fitting = {commit for commit in commits if commit.startswith(version)}
        if len(fitting) == 1:
            return Tip(commit=fitting.pop(), is_sha256=is_sha256)
    return Tip(is_sha256=is_sha256)


def _ref_names(version: str) -> tuple[str, str]:
    """Return the full ref names of tag and branch for a version; one is empty if the version is a full ref name."""
    if version.startswith("refs/tags/"):
        return version, ""
    if version.startswith("refs/heads/"):
        return "", version
    return f"refs/tags/{version}", f"refs/heads/{version}"


async def fetch(where: Repository, version: str, folder: Path, *, is_sha256: bool = False) -> str:
    """Fetch the commit of a full or abbreviated hash into a new repository in `folder`. Returns the full hash.
    `is_sha256`: the server's repository has SHA-256 hashes, not SHA-1; a full SHA-256 hash as `version` implies it."""
    is_sha256 = is_sha256 or len(version) > min(_WHOLE)
    init = ["init", "--quiet", "--bare", "--template=", *(["--object-format=sha256"] if is_sha256 else [])]
    await _git(where, [*init, "--", str(folder)], seconds=ASK_SECONDS)
    get = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"]
    if is_whole_commit(version):
        try:
            await _git(where, [*get, "--depth=1", where.url, version], folder, seconds=FETCH_SECONDS)
        except _RefusedCommitError:
            pass  # older servers only send what a branch or tag points to
        else:
            return await _only_commit(where, version, folder)
    refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
    await _git(where, [*get, where.url, *refs], folder, seconds=FETCH_SECONDS)
    return await _only_commit(where, version, folder)


def write_commit(where: Repository, commit: str, repo: Path, target: Path) -> None:
    """Write the files of a commit in the repository `repo` to `target`. Raises ResolveError if they are too large."""
    start = [_program(where), "--git-dir", str(repo)]
    env = environment_of(where)
    listed = [*start, "ls-tree", "-r", "-z", "-l", "--full-tree", commit]
    with start_unmarked(listed, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        listing, errors = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, listed, listing, errors)
    files: list[tuple[str, str, int, str]] = []
    for line in listing.split(b"\0")[:-1]:
        facts, _, path = line.partition(b"\t")
        mode, kind, oid, length = facts.decode().split()
        if kind == "blob":
            files.append((os.fsdecode(path), mode, int(length), oid))
    total = sum(size for _, _, size, _ in files)
    if len(files) > MOST_FILES or total > LARGEST_BYTES:
        raise ResolveError(
            f"{where.url}@{commit[:8]} has {len(files)} files and {total} bytes; a step package has at most "
            f"{MOST_FILES} files and {LARGEST_BYTES} bytes"
        )
    # Links come last, so that no file is written through one.
    files.sort(key=lambda file: file[1] == _LINK)
    words = [*start, "cat-file", "--batch"]
    with start_unmarked(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for name, mode, size, oid in files:
            process.stdin.write(f"{oid}\n".encode())
            process.stdin.flush()
            process.stdout.readline()
            if not _write(target, name, mode, process.stdout, size) or not process.stdout.read(1):
                raise ResolveError(f"{where.url}@{commit[:8]}: git stopped while it wrote {name!r}")


def _write(target: Path, name: str, mode: str, source: IO[bytes], size: int) -> bool:
    """Write a file or link with this git mode and size from a stream. Returns False if the stream ends early."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        raise ResolveError(f"the repository contains {name!r}, a name that git does not create; it is not used")
    path = target.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if mode == _LINK:
            if size > LONGEST_LINK:
                raise ResolveError(f"the repository contains {name!r}, a link that is too long; it is not used")
            link_target = source.read(size)
            path.symlink_to(os.fsdecode(link_target))
            return len(link_target) == size
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            while size and (chunk := source.read(min(size, _CHUNK))):
                size -= file.write(chunk)
            os.fchmod(file.fileno(), 0o755 if mode == "100755" else 0o644)
        return not size
    except (FileExistsError, NotADirectoryError):
        raise ResolveError(f"the repository contains {name!r} twice; it is damaged and not used") from None


class _RefusedCommitError(ResolveError):
    """Raised if an old server refuses to send a commit by its hash. `fetch` then fetches all branches and tags."""


async def _only_commit(where: Repository, version: str, repo: Path) -> str:
    try:
        words = ["rev-parse", "--verify", "--quiet", f"{version}^{{commit}}"]
        text = await _git(where, words, repo, seconds=ASK_SECONDS)
    except ResolveError:
        raise ResolveError(
            f"{where.url}@{version} not found: no tag, branch or commit has this name, or more than one commit begins "
            f"with it; a commit needs {SHORTEST_COMMIT} or more digits"
        ) from None
    return text.decode().strip()


async def _git(where: Repository, arguments: list[str], repo: Path | None = None, *, seconds: float) -> bytes:
    """Run git, in `repo` if given, and return its output. Raises ResolveError if git fails or takes longer than
    `seconds`; then, and if this call is cancelled, git and its children are killed."""
    process = await asyncio.create_subprocess_exec(
        _program(where),
        *(["--git-dir", str(repo)] if repo is not None else []),
        *arguments,
        cwd="/",
        env=environment_of(where),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate()
    except TimeoutError:
        raise TemporaryResolveError(f"git {arguments[0]} of {where.url} took longer than {seconds:.0f} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await reap(process)
    if process.returncode:
        raise failure(where, errors.decode(errors="replace"))
    return output


def _program(where: Repository) -> str:
    program = shutil.which("git", path=where.env.get("PATH"))
    if program is None:
        raise TemporaryResolveError(
            f"git is not installed on this machine, so {where.url} cannot be fetched; install git", is_away=False
        )
    return program


def environment_of(where: Repository) -> dict[str, str]:
    """Return git's complete environment. HOME does not exist, because jobs could have left configuration in a home."""
    origin = f"{where.address.scheme}://{where.address.netloc}/"
    config = [
        ("credential.helper", ""),
        ("core.hooksPath", "/dev/null"),
        ("gc.auto", "0"),
        ("http.lowSpeedLimit", "1"),
        ("http.lowSpeedTime", "60"),
        ("protocol.allow", "never"),
        ("protocol.http.allow", "always"),
        ("protocol.https.allow", "always"),
    ]
    env = {name: value for name, value in where.env.items() if name in GIT_READS}
    if where.credentials:
        user, _, password = where.credentials.partition(":")
        pair = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        config.append((f"http.{origin}.extraHeader", f"Authorization: Basic {pair}"))
    own_ca, server = where.env.get("CI_SERVER_TLS_CA_FILE"), where.env.get("CI_SERVER_URL")
    if own_ca and server:
        config.append((f"http.{server}.sslCAInfo", own_ca))
    if authorities := where.env.get("SSL_CERT_FILE"):
        env["GIT_SSL_CAINFO"] = authorities
    for number, (key, value) in enumerate(config):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env | {
        "GIT_CONFIG_COUNT": str(len(config)),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
    }


def failure(where: Repository, text: str) -> ResolveError:
    lines = [line for line in text.splitlines() if line.strip()]
    line = next((line for line in lines if line.startswith("fatal:")), lines[-1] if lines else "git gave no reason")
    line = line.removeprefix("fatal: ")
    if _REFUSED_COMMIT.search(text):
        return _RefusedCommitError(f"{where.url}: {line}")
    if _CERTIFICATE.search(text):
        return trust_error(where.address.netloc, line)
    if _ASKS_FOR_CREDENTIALS.search(text):
        state = "does not accept these credentials" if where.credentials else "asks for credentials"
        return ResolveError(
            f"{where.url} cannot be read, the server {state}: {line}; write them before the host, such as "
            "gitlab-ci-token:${{ vars.CI_JOB_TOKEN }}@"
        )
    if _FINAL.search(text):
        return ResolveError(f"{where.url} cannot be read: {line}")
    return TemporaryResolveError(f"{where.url} cannot be reached: {line}")
