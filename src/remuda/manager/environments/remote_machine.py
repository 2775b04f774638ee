"""Manages one machine behind SSH: installs the agent and connects to it, creates and removes job folders, runs hooks.

All files are in one folder, so that another manager that logs in as the same user finds the agent and its jobs:
`/var/lib/remuda-machine` for root (other users cannot read root's home), else `~/.remuda`. A new version of the agent
is a new file, because the old one may still run. The shell scripts are POSIX sh, and running one twice does no harm.
Methods raise SshError if the machine is unreachable or a command fails."""

import asyncio
import functools
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from grpclib.client import Channel

from remuda.lib.dataclass import dataclass
from remuda.manager.environments.agent_greeting import NO_ANSWER, OtherProtocolError, greet
from remuda.manager.environments.port import Hook, JobPlace, PreparedPlace
from remuda.manager.environments.ssh import (
    COMMANDS_AT_ONCE,
    Address,
    SshConnection,
    SshError,
    SshLastingError,
    SshTimeoutError,
)
from remuda.manager.errors import EnvironmentLostError
from remuda.plugins.job_hooks import HOOK_SECONDS, OUTPUT_BYTES, describe_failure, hook_variables
from remuda.steps.agent.bootstrap import (
    LOOK,
    PLACE,
    MachineFacts,
    Offer,
    choose,
    command_line,
    for_interpreter,
    offers,
    read_facts,
)
from remuda.steps.errors import AgentError
from remuda.steps.job_files.data_folder import LONGEST_SOCKET_PATH
from remuda.steps.pack.program import IDLE_EXIT_SECONDS, Form
from remuda.wire.agent_client import AgentClient

HELLO_SECONDS = 45.0
"""How long the agent may take to answer, its start included."""
USED_UP = 9
"""Exit code of the use-count script: no use is left."""
UNUSABLE = 8
"""Exit code of the folder scripts: an operator has to fix something."""

# $1 the base folder or empty, $2 ... names of programs. Prints the first one that has run here; if there is none, the
# facts of LOOK.
_FIND = """
if [ -n "$1" ]; then base=$1
elif [ "$(id -u)" = 0 ]; then base=/var/lib/remuda-machine
else base=$(cd && pwd -P)/.remuda; fi
shift
mkdir -p "$base/bin" && chmod 711 "$base" || exit 1
echo "base $base"
for name; do [ ! -e "$base/bin/$name.runs" ] || { echo "runs $name"; exit 0; }; done
set --
"""
_RUN = "unset SSH_CLIENT SSH_CONNECTION SSH_TTY; exec"
"""The agent outlives the login, so jobs must not see the login's variables."""
# Goes down from a folder that no job can change, part by part, and follows no link of a job; a link or file in place of
# a folder is replaced. The scripts then work in the current folder, so that renames have no effect.
_DOWN = r"""
refuse() { echo "$*" >&2; exit 8; }
check_mounts() {
    while read -r _ _ _ _ point _; do
        case $point in "$1"|"$1"/*) refuse "$point: something is mounted there; unmount it" ;; esac
    done </proc/self/mountinfo
}
own_uid() { ls -ldn "$1" | { read -r _ _ found _; echo "$found"; }; }
# $1 the path, $2 "make", "own" (make, and replace folders of other users on the way) or "look".
down() {
    rest=$1
    while [ -n "$rest" ]; do
        part=${rest%%/*}
        case $rest in */*) rest=${rest#*/} ;; *) rest= ;; esac
        case $part in "") continue ;; .|..) refuse "$1 leads out of its folder" ;; esac
        there=$(pwd -P) && there=${there%/}/$part
        if [ "$2" = own ] && [ -n "$rest" ] && [ -d "./$part" ] && [ "$(own_uid "./$part")" != "$(id -u)" ]; then
            check_mounts "$there"
            rm -rf "./$part" || refuse "$there belongs to a job and cannot be removed"
        fi
        if [ -L "./$part" ] || [ ! -d "./$part" ]; then
            [ "$2" != look ] || return 1
            # Another job may make the same folder at this moment.
            why=$({ rm -f "./$part"; mkdir "./$part"; } 2>&1) || { [ ! -L "./$part" ] && [ -d "./$part" ]; } ||
                refuse "$why: $there cannot be created or written to"
        fi
        { [ -r "./$part" ] && [ -w "./$part" ] && [ -x "./$part" ]; } || chmod u+rwx "./$part" 2>/dev/null
        cd "./$part" || refuse "$there cannot be entered"
        [ "$(pwd -P)" = "$there" ] || refuse "$there is being replaced by somebody"
    done
}
"""
# $1 the builds folder, $2 the path of the working directory in it, $3 the cache folder, $4 the path of the job's caches
# in it, $5 the owner or empty, $6 the base folder, $7 not empty if the job may have begun.
_PREPARE = (
    _DOWN
    + r"""
begin() { mkdir -p "$1" && cd "$1" || refuse "$1 cannot be created or written to"; }
kind=make
[ -z "$5" ] || kind=own
begin "$1" && down "$2" "$kind"
chmod u+rwx . 2>/dev/null && [ -w . ] || refuse "$1/$2 cannot be created or written to"
check_mounts "$(pwd -P)"
mask=$(umask)
begin "$1" && umask 077 && down "$2.tmp" "$kind"
umask "$mask"
# What somebody left there would be in the job's HOME.
if [ -z "$7" ]; then
    check_mounts "$(pwd -P)"
    empty() { find . -mindepth 1 -maxdepth 1 -exec rm -rf {} + 2>/dev/null; }
    empty || { chmod -R u+rwX . 2>/dev/null; empty; } || refuse "$1/$2.tmp cannot be emptied"
fi
[ -n "$5" ] || exit 0
case $5 in
    *:*) uid=${5%%:*} owner=$5 ;;
    *[!0-9]*) uid=$(id -u "$5") && owner=$uid:$(id -g "$5") || exit 8 ;;
    *) uid=$5 owner=$5:$(id -g "$5" 2>/dev/null || echo "$5") ;;
esac
[ "$(id -u)" = 0 ] || refuse "run_as: the agent runs as $(id -un) here, who is not root and cannot run steps as $5"
[ "$uid" != 0 ] || refuse "run_as: steps must not run as root; name another user"
chmod 711 "$6"
# $1 the folder to begin at, $2 the way from there.
hand_over() {
    begin "$1" && down "$2" own
    above=$(pwd -P)
    while above=${above%/*}; [ -n "$above" ]; do
        case $(ls -ld "$above") in
            ?????????[xt]*) ;;
            *)
                refuse "steps run as user $uid, who cannot reach $1/$2: $above is closed to others." \
                    "Use a folder whose parents everybody may search, for example by builds_dir"
                ;;
        esac
    done
    if [ "$(own_uid .)" != "$uid" ]; then
        # A second name of a file may lie elsewhere, and mean somebody else's file. What is nested deeper than a path
        # can say is nothing that a job needs.
        find . -depth \( -type d -o -type l -o -links 1 \) -exec chown -h "$owner" {} + ||
            { find . -mindepth 1 -maxdepth 1 -exec rm -rf {} + && chown -h "$owner" .; } || exit 8
    fi
    # Nobody else gets in, whatever the modes of what is in it.
    chmod 700 .
}
hand_over "$1" "$2"
hand_over "$1" "$2.tmp"
hand_over "$3" "$4"
"""
)
# $1 the builds folder, $2 the path to remove in it.
_REMOVE = (
    _DOWN
    + r"""
case $2 in */*) way=${2%/*} ;; *) way= ;; esac
cd "$1" && down "$way" look || exit 0
gone=./${2##*/}
check_mounts "$(pwd -P)/${2##*/}"
rm -rf "$gone" 2>/dev/null || { [ -L "$gone" ] || chmod -R u+rwX "$gone"; rm -rf "$gone"; } 2>/dev/null || :
"""
)
# $1 the folder of uses, $2 the use count, $3 the job or empty. Prints the number of remaining uses. A use is a file
# with its number as name, which only one of several managers can create.
_USES = r"""
mkdir -p "$1" || exit 1
number=0
if [ -n "$3" ] && ! grep -qsxF "$3" "$1"/*; then
    set -C
    until echo "$3" 2>/dev/null >"$1/$number"; do
        number=$((number + 1))
        [ "$number" -lt "$2" ] || exit 9
    done
fi
echo $(($2 - $(ls "$1" | wc -l)))
"""
_JOBS = r"""
for folder in "$1"/agent/jobs/*; do [ ! -e "$folder" ] || { echo some; break; }; done
"""


class UsedUpError(Exception):
    """The machine has begun as many jobs as it may (`max_use_count`), so it gets no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Installation:
    base: PurePosixPath
    program: str


class RemoteMachine:
    def __init__(
        self,
        name: str,
        address: Address,
        *,
        frozen: Path | None = None,
        use_count: int = 0,
        folder: str = "",
        commands_at_once: int = COMMANDS_AT_ONCE,
    ) -> None:
        """`frozen` is the file of an agent program for machines without Python. `use_count` is the number of jobs that
        the machine may begin in total (0: no limit), `commands_at_once` the number of SSH commands at the same time.
        `folder` replaces the usual folder for all files on the machine (empty: the usual one)."""
        self.name = name
        self._folder = folder
        self.use_count = use_count
        self._commands_at_once = commands_at_once
        self._ssh = SshConnection(address, commands_at_once=commands_at_once)
        self._frozen = frozen
        self._installed: _Installation | None = None
        self._installing = asyncio.Lock()
        self._trusts_mark = True
        """Whether a program with a `.runs` file (it ran here before) is assumed to run again."""

    @property
    def is_up(self) -> bool:
        return self._ssh.is_up and self._installed is not None

    async def reach(self) -> None:
        """Connect to the machine, and install the agent's program if it is missing. Raises SshError on failure."""
        await self._ssh.connect()
        await self._install()

    @property
    def address(self) -> Address:
        return self._ssh.address

    def trust_host_key(self, host_key: str) -> None:
        self._ssh.address = replace(self._ssh.address, host_key=host_key, checks_host_key=True)

    async def log_in(self) -> str:
        """Connect to the machine and return its host key."""
        await self._ssh.connect()
        return self._ssh.host_key

    async def need_sessions(self) -> None:
        """Raise SshLastingError if sshd does not allow enough sessions for the agent and concurrent commands."""
        needed = self._commands_at_once + 1
        if (most := await self._ssh.sessions(needed)) < needed:
            raise SshLastingError(
                f"{self.name}: its sshd allows {most} sessions on one connection, and {needed} are needed for so many "
                "jobs at the same time; raise MaxSessions in sshd_config there, or lower capacity_per_instance"
            )

    async def command(self, line: str, *, seconds: float) -> None:
        """Run an operator's command. Raises SshLastingError if its exit code is not 0, SshTimeoutError if too slow."""
        result = await self._ssh.run(line, seconds=seconds)
        if result.code:
            output = (result.err.strip() or result.out.decode(errors="replace").strip())[-OUTPUT_BYTES:]
            raise SshLastingError(f"{self.name}: {line!r} ended with {result.code} there: {output}")

    def abort(self) -> None:
        self._ssh.abort()

    async def uses_left(self, claiming: str = "") -> int | None:
        """Return how many jobs the machine may still begin (None: any number). First counts the job with the key
        `claiming` as begun, but only once. Raises UsedUpError if `use_count` does not allow that job."""
        if not self.use_count:
            return None
        installed = await self._install()
        result = await self._ssh.run(_script(_USES, f"{installed.base}/uses", str(self.use_count), claiming))
        if result.code == USED_UP:
            raise UsedUpError(self.used_up)
        try:
            return max(int(result.out), 0)
        except ValueError:
            raise SshError(f"{self.name}: the machine's uses cannot be counted: {result.err.strip()}") from None

    @property
    def used_up(self) -> str:
        folder = "its folder" if self._installed is None else str(self._installed.base)
        return f"{self.name} has had its {self.use_count} jobs; remove {folder}/uses there to start over"

    async def has_jobs(self) -> bool:
        installed = await self._install()
        return bool((await self._ssh.run(_script(_JOBS, installed.base))).out)

    async def connect(self) -> AgentClient:
        """Return a connection to the agent; a command starts it if no agent answers. Raises SshError on failure."""
        installed = await self._install()
        socket = f"{installed.base}/agent/agent.sock"
        if len(socket) <= LONGEST_SOCKET_PATH and (client := await self._greet(await self._ssh.socket_channel(socket))):
            return client
        words = ["proxy", "--start", "--idle-exit", str(IDLE_EXIT_SECONDS), "--data", str(installed.base / "agent")]
        channel = await self._ssh.channel(f"{_RUN} {shlex.join([installed.program, *words])}")
        if client := await self._greet(channel):
            return client
        # The program or its Python may have been removed: check again at the next attempt.
        self._installed, self._trusts_mark = None, False
        cause = channel.error_output or f"no answer within {HELLO_SECONDS:.0f} s"
        raise SshError(f"{self.name}: the agent does not answer: {cause}")

    async def _greet(self, channel: Channel) -> AgentClient | None:
        """Return a client; None if no agent answers. Raises SshError if it speaks another protocol version."""
        client = AgentClient(channel)
        try:
            await greet(client, seconds=HELLO_SECONDS)
        except NO_ANSWER:
            return None
        except OtherProtocolError as error:
            raise SshError(f"{self.name}: {error}") from error
        return client

    async def prepare(self, place: JobPlace) -> PreparedPlace:
        """Create the job's folders. Raises EnvironmentLostError if the job's folder cannot be used, else SshError."""
        installed = await self._install()
        folders = place.folders(installed.base)
        words = *place.split_build_path(installed.base, place.folder), *place.split_cache_path(installed.base)
        begun = "begun" if place.may_have_begun else ""
        result = await self._ssh.run(_script(_PREPARE, *words, place.run_as, installed.base, begun))
        if result.code:
            cause = f"the working directory {folders.work_dir} cannot be created on {self.name}: {result.err.strip()}"
            raise EnvironmentLostError(cause) if result.code == UNUSABLE else SshError(cause)
        return folders

    async def remove(self, place: JobPlace) -> None:
        installed = await self._install()
        await self._ssh.run(_script(_REMOVE, *place.split_build_path(installed.base, place.temporary_folder)))

    async def run_hook(self, hook: Hook, place: JobPlace) -> str:
        """Return the hook's output. Raises EnvironmentLostError if it fails or takes longer than HOOK_SECONDS."""
        if not (command := place.command_of(hook)):
            return ""
        installed = await self._install()
        variables = hook_variables(place, work_dir=place.folders(installed.base).work_dir)
        words = ["env", *(f"{key}={value}" for key, value in variables.items()), "sh", "-c", f"exec 2>&1\n{command}"]
        try:
            result = await self._ssh.run(shlex.join(words), seconds=HOOK_SECONDS)
        except SshTimeoutError:
            how = f"took more than {HOOK_SECONDS:.0f} s on {self.name}"
            raise EnvironmentLostError(describe_failure(hook, how, "")) from None
        output = result.out[-OUTPUT_BYTES:].decode(errors="replace")
        if result.code:
            raise EnvironmentLostError(describe_failure(hook, f"ended with {result.code} on {self.name}", output))
        return output

    async def disk_free_bytes(self) -> int:
        installed = await self._install()
        result = await self._ssh.run(f"df -Pk {shlex.quote(str(installed.base))}")
        words = result.out.decode(errors="replace").strip().splitlines()[-1:]
        try:
            return int(words[0].split()[3]) * 1024
        except (IndexError, ValueError):
            raise SshError(f"{self.name}: cannot read its free disk space: {result.err.strip()}") from None

    async def close(self) -> None:
        await self._ssh.close()

    async def _install(self) -> _Installation:
        """Return where the agent's program is on the machine; install it if it is missing. Looks on the machine only at
        the first call, and at the first one after a failed connection to the agent."""
        async with self._installing:
            if self._installed is None:
                try:
                    self._installed = await self._find_or_install()
                except AgentError as error:
                    raise SshError(f"{self.name}: {error}") from error
            return self._installed

    async def _find_or_install(self) -> _Installation:
        offered = {_name(offer): offer for offer in await asyncio.to_thread(_offers, self._frozen)}
        line = _script(_FIND + LOOK, self._folder, *(offered if self._trusts_mark else ()))
        result = await self._ssh.run(line)
        text = result.out.decode(errors="replace")
        if result.code or not text.startswith("base "):
            cause = result.err.strip() or text.strip()
            raise SshError(f"{self.name}: the machine cannot be examined (exit code {result.code}): {cause}")
        facts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        base = PurePosixPath(facts["base"])
        if "runs" not in facts:
            return _Installation(
                base=base, program=await self._copy_program(f"{base}/bin", read_facts(text), list(offered.values()))
            )
        return _Installation(base=base, program=f"{base}/bin/{facts['runs']}")

    async def _copy_program(self, folder: str, facts: MachineFacts, offered: Sequence[Offer]) -> str:
        """Copy the agent's program to `folder` on the machine, and return its path. Its forms (`offered`, such as a zip
        application) that fit the machine's `facts` are tried until one runs. Raises SshError if none runs."""
        failures = []
        for offer in choose(facts, offered):
            program = f"{folder}/{_name(offer)}"
            content = for_interpreter(offer.content, facts.python) if offer.form is Form.ZIPAPP else offer.content
            result = await self._ssh.run(command_line(PLACE, program), content)
            output = result.out.decode(errors="replace").strip()
            if result.code == 0 and offer.digest in output.split():
                await self._ssh.run(f": >{shlex.quote(program)}.runs")
                self._trusts_mark = True
                return program
            failures.append(f"{offer.form}: exit code {result.code} {output} {result.err.strip()}".strip())
        raise SshError(f"{self.name}: the agent does not run there: {'; '.join(failures)}")


@functools.cache
def _offers(frozen: Path | None) -> tuple[Offer, ...]:
    return tuple(offers(frozen))


def _name(offer: Offer) -> str:
    """Return the name of an agent program's file, with a digest, so that every version has another name."""
    return f"agent-{offer.digest[:16]}"


def _script(script: str, *words: str | PurePosixPath) -> str:
    return shlex.join(["sh", "-c", script, "sh", *map(str, words)])
