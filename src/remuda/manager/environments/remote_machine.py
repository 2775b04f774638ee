"""What the manager does on one machine behind SSH: place the agent and connect to it, make and remove folders, hooks.

Everything is under one folder that stays the same for every manager that comes there as that user, so that another one
finds the agent and its jobs: `/var/lib/remuda-machine` for root, whose home others may not enter, `~/.remuda` for
anybody else. In it: `bin/agent-DIGEST` (the program; a new version is another file, since the old one may still run),
`agent/` (the agent's data), `builds/`, `cache/`, and `uses/` with a file for every job that the machine has had, where
its use is limited. Nothing is decided about which job goes where; `machines` does that.

Scripts are POSIX sh and may be repeated. `SshError`: the machine cannot be reached or does not do what it is told.
"""

import asyncio
import functools
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from grpclib.client import Channel

from remuda.lib.dataclass import dataclass
from remuda.manager.environments.hooks import HOOK_SECONDS, OUTPUT_BYTES, hook_failed, hook_variables
from remuda.manager.environments.port import JobPlace, PreparedPlace
from remuda.manager.environments.ssh import (
    COMMANDS_AT_ONCE,
    Address,
    SshConnection,
    SshError,
    SshLastingError,
    SshTimeoutError,
)
from remuda.manager.errors import EnvironmentLostError
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
from remuda.wire.agent_client import AgentClient, AgentRefusedError, AgentUnavailableError

PROTOCOL = 1
"""Of the agent's service, as this manager speaks it."""
HELLO_SECONDS = 45.0
"""How long the agent may take to answer, its start included."""
USED_UP = 9
"""With what the script ends that counts the machine's uses."""
UNUSABLE = 8
"""With what the scripts end that make folders, where somebody has to look."""

# $1 the folder for everything or nothing, $2 ... names of programs: which of them has been seen to run is told, and all
# the rest only where none has.
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
"""The agent outlives the login, so jobs should not see anything of it."""
# The way down from a folder that no job can change, part by part, so that no link of a job's is followed; what a job
# put in the place of a folder is replaced by one. Where the shell is then is where it works, whatever the names mean.
_DOWN = r"""
refuse() { echo "$*" >&2; exit 8; }
check_mounts() {
    while read -r _ _ _ _ point _; do
        case $point in "$1"|"$1"/*) refuse "$point: something is mounted there; unmount it" ;; esac
    done </proc/self/mountinfo
}
own_uid() { ls -ldn "$1" | { read -r _ _ found _; echo "$found"; }; }
# $1 the way, $2 "make", "own" (make, and have no folder on the way that is somebody else's) or "look".
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
                refuse "$why: $there cannot be made, or not be written to"
        fi
        { [ -r "./$part" ] && [ -w "./$part" ] && [ -x "./$part" ]; } || chmod u+rwx "./$part" 2>/dev/null
        cd "./$part" || refuse "$there cannot be entered"
        [ "$(pwd -P)" = "$there" ] || refuse "$there is being replaced by somebody"
    done
}
"""
# $1 the folder of builds, $2 the way to the working directory, $3 the folder of caches, $4 the way to those of the job,
# $5 the owner or nothing, $6 the folder for everything, $7 something if the job may have begun.
_PREPARE = (
    _DOWN
    + r"""
begin() { mkdir -p "$1" && cd "$1" || refuse "$1 cannot be made, or not be written to"; }
kind=make
[ -z "$5" ] || kind=own
begin "$1" && down "$2" "$kind"
chmod u+rwx . 2>/dev/null && [ -w . ] || refuse "$1/$2 cannot be made, or not be written to"
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
[ "$(id -u)" = 0 ] || refuse "run_as: jobs here are $(id -un)'s, who is not root and cannot be $5"
[ "$uid" != 0 ] || refuse "run_as: root is what steps are to be kept from; name another user"
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
# $1 the folder of builds, $2 the way to what goes.
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
# $1 the folder of uses, $2 how many there may be, $3 the job or nothing. Tells how many are left. A use is a file named
# by its number, which only one of several managers can make.
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
    """The machine has had as many jobs as it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """Where things are on the machine."""

    base: PurePosixPath
    program: str


class RemoteMachine:
    """One machine."""

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
        """`folder` is the one for everything there, if it shall be another one."""
        self.name = name
        self._folder = folder
        self.use_count = use_count
        self._commands_at_once = commands_at_once
        self._ssh = SshConnection(address, commands_at_once=commands_at_once)
        self._frozen = frozen
        self._placed: _Placed | None = None
        self._placing = asyncio.Lock()
        self._believes = True
        """Whether a program that ran there once is taken for one that still does."""

    @property
    def is_up(self) -> bool:
        return self._ssh.is_up and self._placed is not None

    async def reach(self) -> None:
        """Be connected, and have the agent's program there."""
        await self._ssh.connect()
        await self._place()

    @property
    def address(self) -> Address:
        """How it is reached."""
        return self._ssh.address

    def believe(self, host_key: str) -> None:
        """From now on it is the machine only if it shows this key."""
        self._ssh.address = replace(self._ssh.address, host_key=host_key, checks_host_key=True)

    async def log_in(self) -> str:
        """Be connected; the key that the machine shows for itself."""
        await self._ssh.connect()
        return self._ssh.host_key

    async def need_sessions(self) -> None:
        """See that the machine's sshd lets as many commands run beside the agent as there will be. SshLastingError."""
        wanted = self._commands_at_once + 1
        if (most := await self._ssh.sessions(wanted)) < wanted:
            raise SshLastingError(
                f"{self.name}: its sshd allows {most} sessions on one connection, and {wanted} are needed for so many "
                "jobs at the same time; raise MaxSessions in sshd_config there, or lower capacity_per_instance"
            )

    async def command(self, line: str, *, seconds: float) -> None:
        """Run an operator's command; what it says counts only where it fails."""
        done = await self._ssh.run(line, seconds=seconds)
        if done.code:
            said = (done.err.strip() or done.out.decode(errors="replace").strip())[-OUTPUT_BYTES:]
            raise SshLastingError(f"{self.name}: {line!r} ended with {done.code} there: {said}")

    def abort(self) -> None:
        """Cut the connection at once."""
        self._ssh.abort()

    async def uses_left(self, claiming: str = "") -> int | None:
        """How many jobs it may still begin; None: any number. A job that claims one is counted, once.

        UsedUpError: the job would be one too many.
        """
        if not self.use_count:
            return None
        placed = await self._place()
        done = await self._ssh.run(_script(_USES, f"{placed.base}/uses", str(self.use_count), claiming))
        if done.code == USED_UP:
            raise UsedUpError(self.used_up)
        try:
            return max(int(done.out), 0)
        except ValueError:
            raise SshError(f"{self.name}: the machine's uses cannot be counted: {done.err.strip()}") from None

    @property
    def used_up(self) -> str:
        """Why it gets no more jobs, when none are left."""
        there = "its folder" if self._placed is None else str(self._placed.base)
        return f"{self.name} has had its {self.use_count} jobs; remove {there}/uses there to start over"

    async def has_jobs(self) -> bool:
        """Whether there is anything an agent there could know."""
        placed = await self._place()
        return bool((await self._ssh.run(_script(_JOBS, str(placed.base)))).out)

    async def connect(self) -> AgentClient:
        """A connection to the agent, which has answered: straight to its socket, or by a program that starts it."""
        placed = await self._place()
        socket = f"{placed.base}/agent/agent.sock"
        if len(socket) <= LONGEST_SOCKET_PATH and (found := await self._greet(await self._ssh.socket_channel(socket))):
            return found
        words = ["proxy", "--start", "--idle-exit", str(IDLE_EXIT_SECONDS), "--data", str(placed.base / "agent")]
        channel = await self._ssh.channel(f"{_RUN} {shlex.join([placed.program, *words])}")
        if found := await self._greet(channel):
            return found
        # Somebody may have removed the program, or its Python; the next one looks again.
        self._placed, self._believes = None, False
        cause = channel.said or f"no answer within {HELLO_SECONDS:.0f} s"
        raise SshError(f"{self.name}: the agent does not answer: {cause}")

    async def _greet(self, channel: Channel) -> AgentClient | None:
        """A client, if an agent answers there."""
        client = AgentClient(channel)
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                hello = await client.hello()
            if hello.protocol != PROTOCOL:
                raise SshError(
                    f"{self.name}: the agent (process {hello.pid} there) speaks protocol {hello.protocol}, this "
                    f"manager {PROTOCOL}; stop that agent when its jobs are over, or use the Remuda that started it"
                )
        except (AgentUnavailableError, AgentRefusedError, TimeoutError):
            client.close()
            return None
        except BaseException:
            client.close()
            raise
        return client

    async def prepare(self, place: JobPlace) -> PreparedPlace:
        """Make the folders of a job."""
        placed = await self._place()
        folders = _folders(placed.base, place)
        words = (*_below(placed.base, place.builds_dir, "builds", place.folder), *_caches_below(placed.base, place))
        begun = "begun" if place.may_have_begun else ""
        done = await self._ssh.run(_script(_PREPARE, *words, place.run_as, str(placed.base), begun))
        if done.code:
            cause = f"the working directory {folders.work_dir} cannot be made on {self.name}: {done.err.strip()}"
            raise EnvironmentLostError(cause) if done.code == UNUSABLE else SshError(cause)
        return folders

    async def remove(self, place: JobPlace) -> None:
        """Remove what was only for this job."""
        placed = await self._place()
        await self._ssh.run(_script(_REMOVE, *_below(placed.base, place.builds_dir, "builds", place.passing)))

    async def hook(self, name: str, command: str, place: JobPlace) -> str:
        """Run the operator's command for a job; its output."""
        if not command:
            return ""
        placed = await self._place()
        variables = hook_variables(place, work_dir=_folders(placed.base, place).work_dir)
        words = ["env", *(f"{key}={value}" for key, value in variables.items()), "sh", "-c", f"exec 2>&1\n{command}"]
        try:
            done = await self._ssh.run(shlex.join(words), seconds=HOOK_SECONDS)
        except SshTimeoutError:
            raise hook_failed(name, f"took more than {HOOK_SECONDS:.0f} s on {self.name}", "") from None
        output = done.out[-OUTPUT_BYTES:].decode(errors="replace")
        if done.code:
            raise hook_failed(name, f"ended with {done.code} on {self.name}", output)
        return output

    async def disk_free_bytes(self) -> int:
        placed = await self._place()
        done = await self._ssh.run(f"df -Pk {shlex.quote(str(placed.base))}")
        words = done.out.decode(errors="replace").strip().splitlines()[-1:]
        try:
            return int(words[0].split()[3]) * 1024
        except (IndexError, ValueError):
            raise SshError(f"{self.name}: its disk cannot be looked at: {done.err.strip()}") from None

    async def close(self) -> None:
        await self._ssh.close()

    async def _place(self) -> _Placed:
        """Have the agent's program there; looked at once for every connection that had trouble."""
        async with self._placing:
            if self._placed is None:
                try:
                    self._placed = await self._look_and_place()
                except AgentError as error:
                    raise SshError(f"{self.name}: {error}") from error
            return self._placed

    async def _look_and_place(self) -> _Placed:
        offered = {_name(offer): offer for offer in await asyncio.to_thread(_offers, self._frozen)}
        line = _script(_FIND + LOOK, self._folder, *(offered if self._believes else ()))
        done = await self._ssh.run(line)
        text = done.out.decode(errors="replace")
        if done.code or not text.startswith("base "):
            cause = done.err.strip() or text.strip()
            raise SshError(f"{self.name}: the machine cannot be looked at (exit code {done.code}): {cause}")
        found = dict(told.split(" ", 1) for told in text.splitlines() if " " in told)
        base = PurePosixPath(found["base"])
        if "runs" not in found:
            return _Placed(base=base, program=await self._put(f"{base}/bin", read_facts(text), list(offered.values())))
        return _Placed(base=base, program=f"{base}/bin/{found['runs']}")

    async def _put(self, folder: str, facts: MachineFacts, offered: Sequence[Offer]) -> str:
        """Place what runs there; the program's path."""
        failures = []
        for offer in choose(facts, offered):
            program = f"{folder}/{_name(offer)}"
            content = for_interpreter(offer.content, facts.python) if offer.form is Form.ZIPAPP else offer.content
            done = await self._ssh.run(command_line(PLACE, program), content)
            said = done.out.decode(errors="replace").strip()
            if done.code == 0 and offer.digest in said.split():
                await self._ssh.run(f": >{shlex.quote(program)}.runs")
                self._believes = True
                return program
            failures.append(f"{offer.form}: exit code {done.code} {said} {done.err.strip()}".strip())
        raise SshError(f"{self.name}: the agent does not run there: {'; '.join(failures)}")


@functools.cache
def _offers(frozen: Path | None) -> tuple[Offer, ...]:
    """What can be placed; made once, for all machines."""
    return tuple(offers(frozen))


def _name(offer: Offer) -> str:
    """A program's file; another version is another file."""
    return f"agent-{offer.digest[:16]}"


def _script(script: str, *words: str) -> str:
    return shlex.join(["sh", "-c", script, "sh", *words])


def _folders(base: PurePosixPath, place: JobPlace) -> PreparedPlace:
    builds = base / (place.builds_dir or "builds")
    caches = base / (place.cache_dir or "cache") / place.run_as
    return PreparedPlace(work_dir=str(builds / place.folder), builds_dir=str(builds), cache_dir=str(caches))


def _below(base: PurePosixPath, configured: str, usual: str, folder: str) -> tuple[str, str]:
    """A folder that the operator has named, whose path may have links in it, and the rest, which must have none."""
    return (str(base / configured), folder) if configured else (str(base), f"{usual}/{folder}")


def _caches_below(base: PurePosixPath, place: JobPlace) -> tuple[str, str]:
    return _below(base, place.cache_dir, "cache", place.run_as)
