"""Interactive shells and other commands in a job that runs or is kept for debugging: the gRPC call `Shell`.

The command runs in the job's environment (such as its container), as the user of its steps, within the limits of the
policy. It is ended, with all processes of its session, when its session leader, the call or the job ends, or when a
step begins that a policy inserted. With a terminal it has a pty as its controlling terminal, else three pipes."""

import asyncio
import fcntl
import json
import os
import signal
import struct
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from grpclib.server import Stream

from remuda.lib.files import write_whole
from remuda.lib.waiting import wait_for_event
from remuda.steps.agent.jobs import Jobs
from remuda.steps.delegation.client import CommandChannel
from remuda.steps.delegation.files import Order
from remuda.steps.engine.hold import Entrance
from remuda.steps.engine.process_execution import AgentContext
from remuda.steps.errors import AgentError, BadRequestError
from remuda.steps.job_tree.rights import OWN
from remuda.steps.language.values import ReferenceKind
from remuda.steps.pack.program import own_command
from remuda.steps.policy.enforcement import PolicyEnforcement
from remuda.steps.policy.host_abilities import host_of
from remuda.steps.policy.rules import decide
from remuda.steps.policy.step_limits import Enclosure, enclose
from remuda.steps.policy.values import Subject
from remuda.steps.process import leftovers, marks, shim
from remuda.steps.process.environment import fit
from remuda.steps.process.limits import NO_LIMITS
from remuda.steps.process.step_files import EXCHANGE
from remuda.steps.process.step_process import StepProcess
from remuda.wire.proto import agent_pb2 as pb
from remuda.wire.proto.agent_grpc import AgentStub

MOST_AT_ONCE = 20
"""How many shells one job may have open."""
MOST_BYTES = 64 * 1024
GRACE_SECONDS = 5.0
"""How long a command may take to end after SIGHUP: it may have to end processes in a container first."""
LARGEST_SIZE = 9999
DEFAULT_TERM = "xterm"
_SHELL = '[ -t 0 ] && set -- -i; if command -v bash >/dev/null 2>&1; then exec bash "$@"; else exec sh "$@"; fi'
DEFAULT_COMMAND = ("sh", "-c", _SHELL, "sh")
_START = """
_remuda_work=$1
ulimit -S -n "$2" 2>/dev/null
shift 2
while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done
shift
cd "$_remuda_work" && unset _remuda_work && exec "$@"
"""
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    work_dir: str
    key: str
    """The job's key, for the mark of the process."""
    enclosure: Enclosure


@contextmanager
def prepare(
    entrance: Entrance, enforcement: PolicyEnforcement, folder: Path, key: str, open_request: pb.ShellOpen
) -> Iterator[Prepared]:
    """Write the files for a shell's command and yield how to start it; after the block remove the files and the control
    groups. `entrance`: where the command runs. `folder`: the job's folder. `key`: the job's key, which is part of the
    names of control groups. Raises AgentError if the policy allows no shell or the command is invalid."""
    number = f"shell-{os.getpid()}-{next(_numbers)}"
    prefix, is_agents = entrance.way.prefix, entrance.way.has_agents_rights
    term = open_request.term
    if not term or not term.isprintable() or len(term) >= 100:
        term = DEFAULT_TERM
    env = dict(entrance.env) | ({"TERM": term} if open_request.terminal else {})
    command = tuple(open_request.command) or DEFAULT_COMMAND
    if any("\0" in word for word in command):
        raise BadRequestError("a word of the command holds a NUL byte")
    place = Path(entrance.work_dir)
    is_own = prefix[:1] == (OWN,)
    with ExitStack() as cleanup:
        enclosure = _enclosure(enforcement, folder, place, f"{key}.{number}", is_agents=is_agents)
        cleanup.callback(enclosure.remove)
        if prefix:
            # The program that passes the command on reads this file. If it has the agent's rights, the job must not be
            # able to change the file.
            command_file = (folder if is_agents else folder / EXCHANGE) / f"{number}.command"
            cleanup.callback(command_file.unlink, missing_ok=True)
            content = {"command": list(command), "work_dir": entrance.work_dir, "env": fit(env).exported}
            write_whole(command_file, json.dumps(content | {"terminal": open_request.terminal}).encode())
            if (person := enclosure.person) is not None:
                os.chown(command_file, person.uid, person.gid, follow_symlinks=False)
            command = (*prefix, str(command_file))
            if is_own:
                program = "container_shell" if prefix[1:2] == ("container_exec",) else prefix[1]
                command = (*own_command("step"), program, *command[2:])
            env = dict(entrance.outer_env) | ({"TERM": term} if open_request.terminal else {})
        if enforcement.sandbox is not None and not is_agents:
            inside = folder / f"{number}.sandbox"
            cleanup.callback(inside.unlink, missing_ok=True)
            command, env = enforcement.wrap_command(command, fit(env).exported, inside, is_own=is_own)
        env_file = folder / f"{number}.env"
        cleanup.callback(env_file.unlink, missing_ok=True)
        argv, outer = enclosure.wrap(command, fit(env).exported, env_file)
        yield Prepared(argv=tuple(argv), env=outer, work_dir=entrance.work_dir, key=key, enclosure=enclosure)


def _enclosure(enforcement: PolicyEnforcement, folder: Path, work_dir: Path, key: str, *, is_agents: bool) -> Enclosure:
    """Return limits and user for a shell's command. `folder`: the job's folder. `key`: name of its control groups.
    `is_agents`: it runs as the agent's user. Raises AgentError if the policy allows no shell."""
    if not enforcement.is_restricted:
        return Enclosure(limits=NO_LIMITS, work_dir=work_dir)
    subject = Subject(
        kind=ReferenceKind.LOCAL, reference="the job's own command", name="shell", path="/shell", origin="user"
    )
    decision = decide(enforcement.policy, subject)
    if not decision.allowed:
        raise AgentError(f"the job's step policy allows no shell: {decision.reason}")
    enclosure = enclose(
        host_of(folder.parent.parent, enforcement.cgroup),
        decision.limits,
        key=key,
        work_dir=work_dir,
        person=None if is_agents else enforcement.person,
        inside=is_agents,
        apart=is_agents or enforcement.person is not None,
        slot=enforcement.slot,
    )
    if refusal := enforcement.refusal(enclosure):
        enclosure.remove()
        raise AgentError(refusal)
    return enclosure


class Shell:
    def __init__(self, prepared: Prepared, open_request: pb.ShellOpen, context: AgentContext) -> None:
        self._ending = asyncio.Event()
        """Set when the command's session leader has ended, or must end."""
        self.reason = ""
        """Why the shell was ended although the job goes on; empty if the command ended by itself."""
        self._is_killed = False
        self._waiting: set[asyncio.Event] = set()
        self._input, outputs = self._spawn(prepared, open_request, context)
        self._outputs = outputs
        self._start = shim.start_time(self._process.pid) or 0

    def hang_up(self) -> None:
        """Send SIGHUP to the command and stop copying, without waiting: the client has left or the job is over."""
        if not self._process.exited.is_set():
            self._process.signal_group(signal.SIGHUP)
        self._end()

    async def end(self, reason: str = "") -> None:
        """End all processes of the command's session: SIGHUP, after a grace period SIGKILL. Waits a limited time for
        the session leader. `reason` is shown to the user."""
        self.reason = self.reason or reason
        self.hang_up()
        await wait_for_event(self._process.exited, within_seconds=GRACE_SECONDS)
        if not self._is_killed:  # only once, because the process id may be reused later
            self._is_killed = True
            leftovers.end_session(self._process.pid, since=self._start)
        await wait_for_event(self._process.exited, within_seconds=GRACE_SECONDS)

    async def serve(self, stream: "Stream[pb.ShellInput, pb.ShellOutput]") -> int | None:
        """Copy input and output until the command has ended. Returns its exit code (128 + N for signal N), if known."""
        try:
            await stream.send_message(pb.ShellOutput(opened=True))
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(self._listen(stream), name="shell input")
                async with asyncio.TaskGroup() as pumps:
                    for file, kind in self._outputs:
                        pumps.create_task(self._pump(file, kind, stream.send_message), name=f"shell {kind}")
                    await self._ending.wait()
                listening.cancel()
        finally:
            await self._finish()
        status = self._process.status
        return None if status is None else status if status >= 0 else 128 - status

    async def _finish(self) -> None:
        self.hang_up()
        self._close_input()
        for file, _ in self._outputs:
            os.close(file)
        self._outputs = ()
        await self.end()

    def _spawn(
        self, prepared: Prepared, open_request: pb.ShellOpen, context: AgentContext
    ) -> tuple[int, tuple[tuple[int, str], ...]]:
        """Start the command. Returns the descriptor to which the agent writes the command's input, and those from which
        it reads its outputs, each with its kind: "data" (stdout or terminal) or "errors" (stderr)."""
        opened: list[int] = []
        try:
            if open_request.terminal:
                opened += os.openpty()
                master, slave = opened
                resize(master, open_request.size)
                name = os.ttyname(slave)
                if (person := prepared.enclosure.person) is not None:
                    os.chown(name, person.uid, person.gid)
                # A session leader that opens a terminal gets it as its controlling terminal.
                actions: list[tuple[object, ...]] = [(os.POSIX_SPAWN_OPEN, 0, name, os.O_RDWR, 0)]
                actions += [(os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
                theirs: tuple[int, ...] = (slave,)
                ours: tuple[int, tuple[tuple[int, str], ...]] = (os.dup(master), ((master, "data"),))
                opened.append(ours[0])
            else:
                for _ in range(3):
                    opened += os.pipe()
                stdin, feed, output, stdout, errors, stderr = opened
                actions = [(os.POSIX_SPAWN_DUP2, file, place) for place, file in enumerate((stdin, stdout, stderr))]
                theirs = (stdin, stdout, stderr)
                ours = (feed, ((output, "data"), (errors, "errors")))
            words = [shim.SHELL, "-c", _START, "remuda-shell", prepared.work_dir, str(context.open_files)]
            words += [*prepared.enclosure.joins, "--", *prepared.argv]
            with marks.mark_children(prepared.key):
                pid = os.posix_spawn(
                    shim.SHELL,
                    words,
                    dict(prepared.env),
                    file_actions=actions,
                    setsid=True,
                    setsigmask=(),
                    setsigdef=shim.RESET,
                )
        except BaseException:
            for file in opened:
                os.close(file)
            raise
        for file in theirs:
            os.close(file)
        for file in (ours[0], *(file for file, _ in ours[1])):
            os.set_blocking(file, False)
        self._process = StepProcess(pid, start=None, child=True, pulse=context.pulse, wake=self._end)
        return ours

    def _end(self) -> None:
        self._ending.set()
        for event in self._waiting:
            event.set()

    async def _listen(self, stream: "Stream[pb.ShellInput, pb.ShellOutput]") -> None:
        async for message in stream:
            match message.WhichOneof("input"):
                case "data":
                    await self._write(message.data)
                case "size" if self._input >= 0:
                    resize(self._input, message.size)
                case "end":
                    self._close_input()
        self.hang_up()

    async def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._input >= 0:
            try:
                view = view[os.write(self._input, view) :]
            except BlockingIOError:
                await self._ready(self._input, writing=True)
            except OSError:  # the command has closed its input
                return

    def _close_input(self) -> None:
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    async def _pump(self, file: int, kind: str, send: Callable[[pb.ShellOutput], Awaitable[None]]) -> None:
        """Send the output from the descriptor `file` to the client, until the command has closed it, or the shell is
        being ended and there is no more data. `kind`: "data" (stdout or terminal) or "errors" (stderr)."""
        while True:
            is_last = self._ending.is_set()
            try:
                data = os.read(file, MOST_BYTES)
            except BlockingIOError:
                if is_last:
                    return
                await self._ready(file)
                continue
            except OSError:  # nobody has the terminal open any more
                return
            if not data:
                return
            await send(pb.ShellOutput(data=data) if kind == "data" else pb.ShellOutput(errors=data))

    async def _ready(self, file: int, *, writing: bool = False) -> None:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        self._waiting.add(event)
        add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
        add(file, event.set)
        try:
            if not self._ending.is_set():
                await event.wait()
        finally:
            remove(file)
            self._waiting.discard(event)


def resize(terminal: int, size: pb.TerminalSize) -> None:
    """Set the size of a terminal. Invalid sizes, and descriptors that are no terminal, are ignored."""
    if 0 < size.columns <= LARGEST_SIZE and 0 < size.rows <= LARGEST_SIZE:
        with suppress(OSError):
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))


async def pass_on(order: Path, open_request: pb.ShellOpen, stream: "Stream[pb.ShellInput, pb.ShellOutput]") -> None:
    """Forward the input and output of a `Shell` call to and from another agent, which runs the steps of this job
    (delegation). `order`: the file that describes the delegated steps and how to reach that agent."""
    parsed = Order.read(order)
    forwarded = pb.ShellOpen()
    forwarded.CopyFrom(open_request)
    forwarded.id = parsed.id
    async with _other_agent(parsed) as stub, stub.Shell.open() as call, asyncio.TaskGroup() as tasks:
        await call.send_message(pb.ShellInput(open=forwarded))

        async def forward() -> None:
            async for message in stream:
                await call.send_message(message)
            await call.end()

        forwarding = tasks.create_task(forward(), name="shell input to another agent")
        async for answer in call:
            await stream.send_message(answer)
        forwarding.cancel()


@asynccontextmanager
async def _other_agent(order: Order) -> AsyncIterator[AgentStub]:
    channel = CommandChannel(order)
    try:
        yield AgentStub(channel)
    finally:
        await channel.end()


async def attend(jobs: Jobs, first: pb.ShellInput, stream: "Stream[pb.ShellInput, pb.ShellOutput]") -> None:
    """Serve one `Shell` call: run the command in its first message `first`, or tell the client why it cannot run."""
    try:
        last = await _run_shell(jobs, first, stream)
    except AgentError as error:
        last = pb.ShellOutput(refused=str(error))
    except OSError as error:
        last = pb.ShellOutput(refused=f"the shell cannot be started: {error.strerror or error}")
    if last is not None:
        await stream.send_message(last)
    # The caller disconnects after the last message; ending the call earlier could cut it off.
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            while await stream.recv_message() is not None:
                pass


async def _run_shell(
    jobs: Jobs, first: pb.ShellInput, stream: "Stream[pb.ShellInput, pb.ShellOutput]"
) -> pb.ShellOutput | None:
    """Run the command of a `Shell` call in its job. Returns the last message for the client; None if another agent runs
    the job's steps, because that agent has sent it. Raises AgentError if the shell is refused."""
    open_request = first.open
    if first.WhichOneof("input") != "open":
        raise BadRequestError("the first message of a Shell call must be `open`")
    job = jobs.get(open_request.id)
    enforcement = await job.footprint.load_enforcement()
    entrance = job.entrance(enforcement)
    if entrance is None:
        if job.end is None:
            raise AgentError("the job has not begun yet, or is just ending")
        raise AgentError("the job is over, and its environment is gone")
    if entrance.way.order:
        await pass_on(Path(entrance.way.order), open_request, stream)
        return None
    if len(job.shells) >= MOST_AT_ONCE:
        raise AgentError(f"the job has {MOST_AT_ONCE} shells already; end one first")
    with prepare(entrance, enforcement, job.journal.folder, job.journal.key, open_request) as prepared:
        shell = Shell(prepared, open_request, jobs.context)
        job.shells.add(shell)
        try:
            code = await shell.serve(stream)
        finally:
            job.shells.discard(shell)
    if shell.reason:
        return pb.ShellOutput(refused=shell.reason)
    return pb.ShellOutput(exit_code=128 + signal.SIGHUP if code is None else code)
