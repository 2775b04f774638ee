"""Applies a job's policy to its steps; `steps.engine` calls it for every step that begins, runs and ends.

A step's limits are combined with those of the steps that contain it. Built-in steps that only talk to a container
engine are exempt: the limits apply to their containers. All decisions depend only on the job's request, so they are the
same after a restart of the agent."""

import asyncio
import json
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.lib.clock import Clock
from remuda.lib.files import write_whole
from remuda.lib.safe_paths import close_after, open_folder, open_plain
from remuda.lib.tasks import finish_despite_cancel
from remuda.steps.errors import AgentError
from remuda.steps.job_tree.rights import (
    ENGINE_CLIENTS,
    exchange_of,
    find_exchange_files,
    has_agents_rights,
    is_own,
    is_own_name,
    runs_in_container,
)
from remuda.steps.job_tree.tree import INSERTED, NOTHING_INSERTED, Entered, Inserted, Loaded, Node
from remuda.steps.language.evaluate import reveal
from remuda.steps.language.values import Call, ReferenceKind
from remuda.steps.pack.program import own_command
from remuda.steps.policy import hidden_folders, ipc_cleanup, user_cleanup
from remuda.steps.policy.host_abilities import Host, host_of
from remuda.steps.policy.job_user import JobUser, hand_over
from remuda.steps.policy.rules import decide, decide_engine, find_insertions
from remuda.steps.policy.sandbox import Sandbox, problem, variable_options
from remuda.steps.policy.slot_cgroup import SlotGroup
from remuda.steps.policy.step_limits import Enclosure, enclose, sweep
from remuda.steps.policy.values import Decision, Policy, Subject
from remuda.steps.process.environment import DEFAULT_PATH, PROXIES
from remuda.steps.process.launch import Launch
from remuda.steps.process.limits import NO_LIMITS, Limits
from remuda.steps.process.marks import VARIABLE
from remuda.steps.process.step_files import EXCHANGE, INSERTED_EXCHANGE, SECRETS, StepFiles, is_step_name, make_empty

_LOOKS, _LOOK_SECONDS = 100, 0.01
FREE = Decision(allowed=True, rule="", reason="there is no policy")


class PolicyEnforcement:
    def __init__(
        self,
        *,
        policy: Policy,
        person: JobUser | None,
        job: Path,
        work_dir: Path,
        key: str,
        slot: SlotGroup | None = None,
        has_own_user: bool = False,
        sandbox: Sandbox | None = None,
    ) -> None:
        """`person`: the user of the steps, if not the agent's own. `job`: the job's folder. `key` identifies the job
        among those of all agents. `slot`: the control group of the job. `has_own_user`: no other job uses `person`."""
        self.policy = policy
        self.person = person
        self.slot = slot
        self._own_uid = person.uid if person and has_own_user else None
        self.sandbox = sandbox
        self._job = job
        self._key = key
        self._work_dir = work_dir
        self._free = Enclosure(limits=NO_LIMITS, work_dir=work_dir)

    @property
    def cgroup(self) -> str:
        return self.slot.path if self.slot is not None else ""

    @property
    def is_restricted(self) -> bool:
        """True if the job's steps have a policy, a control group, or a user other than the agent's."""
        return bool(self.policy.layers or self.cgroup) or self.person is not None

    @property
    def env(self) -> dict[str, str]:
        """Environment variables such as HOME for steps that run as another user or in a sandbox; empty for other steps.
        They override the agent's base environment; all other sources of variables override them."""
        if self.person is None and (self.sandbox is None or self.sandbox.hidden):
            return {}
        temporary = f"{self._work_dir}.tmp"
        home = temporary if os.path.isdir(temporary) else str(self._work_dir)
        if self.person is None:
            return {"HOME": home}
        return {"HOME": home, "USER": str(self.person.uid), "LOGNAME": str(self.person.uid)} | self.person.env

    def prepare(self, *, has_begun: bool = False) -> None:
        """Create the job's control group, check its sandbox, and give the working directory to the user of the steps,
        but not after a restart of the agent (`has_begun`). Raises AgentError if a restriction cannot be applied."""
        if self.slot is not None:
            self.slot.begin()
        if self.sandbox is not None and (why := self._lacks_sandbox()) is not None:
            raise AgentError(
                f"the job must run in a sandbox, but this machine cannot create one: {why}. Install or allow it "
                "there, or set sandbox = false for the runner"
            )
        if self.person is None or has_begun:
            return
        self._work_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        for folder in (self._job.parent.parent, self._job.parent, self._job, self._exchange):
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o011)
        hand_over(self._work_dir, self.person)

    def remark(self) -> str | None:
        """Return a warning for the job's log if the job's control group cannot be used; else None."""
        if not self.cgroup or self._host.groups.folders():
            return None
        why = "; ".join(sorted(set(self._host.groups.lacking.values())))
        return f"the job's processes are not in the control group {self.cgroup}: {why}"

    def insertable(self) -> dict[str, Call]:
        """Return all steps that the policy may add to a job, by their names."""
        return {insertion.call.name: insertion.call for layer in self.policy.layers for insertion in layer.insertions}

    def decide(self, node: Node, loaded: Loaded) -> Decision:
        if not self.policy.layers:
            return FREE
        within = self._limits_around(node)
        if node.phase or node.is_group:
            return Decision(allowed=True, rule="", reason="", limits=within)
        return decide(self.policy, _subject(node, loaded), within=within)

    def decide_inputs(self, node: Node, loaded: Loaded, entered: Entered, env: Mapping[str, str]) -> Decision:
        """Decide whether a step that the job's author wrote may use the container engine that its input `engine`, or
        else DOCKER_HOST in `env`, names. Steps that name none, and all other steps, are allowed. `env`: the step's
        environment variables; empty if the step's program does not get them."""
        if not node.is_users or not is_own_name(loaded, ENGINE_CLIENTS):
            return FREE
        address = str(reveal(entered.inputs.get("engine") or "") or env.get("DOCKER_HOST", ""))
        if not address or not (self.policy.layers or self.person or self.sandbox):
            return FREE
        return decide_engine(self.policy, address)

    def around(self, node: Node, loaded: Loaded) -> Inserted:
        if not self.policy.layers or node.phase or node.is_group or loaded.kind is None:
            return NOTHING_INSERTED
        return find_insertions(self.policy, _subject(node, loaded))

    def limits(self, node: Node) -> Limits:
        return self.decide(node, node.loaded).limits if node.loaded is not None else NO_LIMITS

    def enclose(self, node: Node) -> Enclosure:
        if not self.is_restricted:
            return self._free
        is_client, is_inside = is_own(node, ENGINE_CLIENTS), runs_in_container(node)
        is_agents = has_agents_rights(node)
        return enclose(
            self._host,
            self.limits(node),
            key=f"{self._key}.{node.serial}",
            work_dir=self._work_dir,
            person=None if is_agents else self.person,
            inside=is_client or is_inside,
            # A container that the job has opened itself, at an engine of its choice, does not isolate it.
            apart=(is_inside and is_agents) or self.person is not None,
            slot=self.slot,
        )

    def around_launch(self, launch: Launch, node: Node, enclosure: Enclosure, files: StepFiles) -> Launch:
        """Return `launch` changed so that the step's limits (`enclosure`), user and sandbox apply to its process."""
        env = dict(launch.env)
        if enclosure is not self._free and is_own(node, ENGINE_CLIENTS) and enclosure.limits is not NO_LIMITS:
            env["REMUDA_LIMITS"] = enclosure.limits.to_json()
        if enclosure.replaces_proxies:
            env = {name: value for name, value in env.items() if name.lower() not in PROXIES}
        launch = self.wrap_in_sandbox(replace(launch, env=env), node, files.sandbox)
        if enclosure is self._free:
            return launch
        env = dict(launch.env)
        owner = None
        if enclosure.person is not None:
            self.give(files, node, has_raw=not launch.piped)
            owner = (enclosure.person.uid, enclosure.person.gid)
        argv, outer = enclosure.wrap(launch.argv, env, files.env)
        return replace(
            launch,
            argv=tuple(argv),
            env=outer,
            owner=owner,
            joins=enclosure.joins,
            enclosure=enclosure.spec or {"joins": enclosure.joins},
            program_env=env,
        )

    def wrap_in_sandbox(self, launch: Launch, node: Node, env_file: Path) -> Launch:
        """Return the launch, changed to run in the job's sandbox, if any, unless the step has the agent's rights."""
        if self.sandbox is None or has_agents_rights(node):
            return launch
        argv, env = self.wrap_command(
            launch.argv,
            launch.env,
            env_file,
            is_own=bool(launch.program),
            is_inserted=exchange_of(node) == INSERTED_EXCHANGE,
        )
        return replace(launch, argv=argv, env=env, program=())

    def wrap_command(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        env_file: Path,
        *,
        is_own: bool,
        is_inserted: bool = False,
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return command line and environment that run a command in the job's sandbox. The program that creates it runs
        outside, so the command's variables are written to `env_file`. `is_own`: the command is a program of Remuda.
        `is_inserted`: files of steps that the policy added are visible. Raises AgentError if Remuda's program cannot be
        loaded in the sandbox, DefinitionError if the variables cannot be set."""
        assert self.sandbox is not None
        if is_own and self.person is not None:
            why = problem(self.person.uid, self.person.gid, shown=hidden_folders.own_places())
            if why is not None:
                raise AgentError(
                    f"Remuda's own steps cannot run in the sandbox of user {self.person.uid}: {why}. Install Remuda "
                    "and its Python where every user can read them, for example below /opt"
                )
        write_whole(env_file, variable_options(env))
        if self.person is not None:
            os.chown(env_file, self.person.uid, self.person.gid, follow_symlinks=False)
        outer = {"PATH": DEFAULT_PATH} | ({VARIABLE: env[VARIABLE]} if VARIABLE in env else {})
        return self.sandbox.wrap(command, env_file=str(env_file), is_own=is_own, is_inserted=is_inserted), outer

    def wrap_job_command(
        self, command: Sequence[str], env: Mapping[str, str], env_file: Path
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return command line and environment with which a program of the agent runs a command as the job's user and in
        its sandbox, any number of times. `env`: variables that the job cannot set, because a program with the agent's
        rights starts with them. Raises like `wrap_command`."""
        argv, outer = tuple(command), dict(env)
        if self.sandbox is not None:
            argv, outer = self.wrap_command(command, env, env_file, is_own=False)
        if self.person is not None:
            spec = {"uid": self.person.uid, "gid": self.person.gid}
            argv = (*own_command("enclose"), json.dumps(spec), *argv)
        return argv, outer

    def refusal(self, enclosure: Enclosure) -> str | None:
        """Return why an allowed step must not start (the policy refuses limits that a step could evade), or None."""
        author = self.policy.refuses_advisory
        if author is None or not enclosure.advisory:
            return None
        weak = "; ".join(f"{name}: {why}" for name, why in enclosure.advisory.items())
        return f"the policy of {author} refuses steps whose limits are advisory ({weak})"

    def report(self, decision: Decision, enclosure: Enclosure | None) -> dict[str, Any]:
        """Return `{"policy": ...}` for a step's result: decision and enforced limits; empty if not restricted."""
        if not self.is_restricted or not (decision.rule or enclosure):
            return {}
        details: dict[str, Any] = {"decision": "allowed" if decision.allowed else "denied", "rule": decision.rule}
        details["reason"] = decision.reason
        return {"policy": details | (enclosure.report() if enclosure else {})}

    def usage(self) -> dict[str, float]:
        """Return the resource usage of the whole job; empty if it has no control group."""
        return self.slot.usage() if self.slot is not None else {}

    def files_in_shared_places(self) -> Iterator[str | None]:
        """Yield the paths of files that the job's own user has in shared folders such as /tmp, and None for each file
        of another user, so that the caller can stop a long search. Yields nothing if other jobs have the same user."""
        if self._own_uid is not None and not user_cleanup.is_listed(self._own_uid):
            for entry in user_cleanup.search_files(self._own_uid):
                yield entry and entry.path

    async def sweep(self, clock: Clock) -> tuple[str, ...]:
        """Clean up after a finished job: kill its processes, remove its control group and, if it has its own user, that
        user's files in shared folders. Returns descriptions of processes that do not end. If cancelled, still waits for
        the removal, which could otherwise delete files of the next job with the same user."""
        survivors = await sweep(self._host, self._key, clock) if self.is_restricted else ()
        if self._own_uid is not None:
            clearing = asyncio.to_thread(_clear_user, self._own_uid)
            await finish_despite_cancel(clearing, name=f"job {self._key}: clear its user")
        self.leave_slot()
        return survivors

    async def end_processes(self, clock: Clock) -> tuple[str, ...]:
        """Kill the processes that earlier steps left in the job's control groups, and those of the job's own user. The
        job goes on after that. Returns descriptions of processes in the control groups that do not end."""
        survivors = await sweep(self._host, self._key, clock) if self.is_restricted else ()
        if self._own_uid is not None:
            ending = asyncio.to_thread(_end_processes, self._own_uid)
            await finish_despite_cancel(ending, name=f"job {self._key}: end its user's processes")
        return survivors

    def leave_slot(self) -> None:
        """Remove the control group of the job, unless it existed before the job or still contains a process."""
        if self.slot is not None:
            self.slot.remove()

    def _lacks_sandbox(self) -> str | None:
        if self.sandbox is not None and self.sandbox.hidden:
            return hidden_folders.problem()
        return problem() if self.person is None else problem(self.person.uid, self.person.gid)

    @property
    def _host(self) -> Host:
        return host_of(self._job.parent.parent, self.cgroup)

    @property
    def _exchange(self) -> Path:
        return self._job / EXCHANGE

    def give(self, files: StepFiles, node: Node, *, has_raw: bool) -> None:
        """Create the files that a step writes, and make the job's user the owner of these, of the step's other files,
        of the files of the step that contains it, and of the files of file variables. `has_raw`: also create the file
        for the step's raw output. Raises DefinitionError or OSError if the job has replaced a file."""
        assert self.person is not None
        raw = [files.own_path(".raw")] if has_raw else []
        for path in (*raw, *map(str, (files.outputs, files.exports, files.masks))):
            make_empty(path)
        steps = (files.name, find_exchange_files(self._job, node.frame).name)
        paths, folders = [*raw], [files.temporary]
        if node.insertion is not None:
            folders.append(find_exchange_files(self._job, node.insertion).home)
        if is_own(node, {"secrets"}):
            secrets = self._exchange / SECRETS
            secrets.mkdir(mode=0o700, exist_ok=True)
            folders.append(secrets)
        for place in dict.fromkeys((exchange_of(node), exchange_of(node.frame))):
            folder = self._job / place
            if place == INSERTED_EXCHANGE:
                folder.chmod(0o711)
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
            for name in names:
                if not _is_for(name, steps):
                    continue
                is_steps = name.startswith(f"{files.name}.") or place == INSERTED_EXCHANGE
                if node.is_inserted and is_steps and _is_read(name):
                    self._let_read(f"{folder}/{name}")
                else:
                    paths.append(f"{folder}/{name}")
        for name in paths:
            with close_after(open_plain(name)) as file:
                os.fchown(file, self.person.uid, self.person.gid)
        for folder in folders:
            with suppress(FileNotFoundError), close_after(open_folder(str(folder))) as opened:
                os.fchown(opened, self.person.uid, self.person.gid)

    def _let_read(self, path: str) -> None:
        """Let the job's user read but not write a file of a step that the policy added, which runs as that user."""
        assert self.person is not None
        with close_after(open_plain(path)) as file:
            os.fchown(file, os.geteuid(), self.person.gid)
            os.fchmod(file, 0o640)

    def _limits_around(self, node: Node) -> Limits:
        parent = node.parent
        return NO_LIMITS if parent is None or parent.parent is None else self.limits(parent)


def _end_processes(uid: int) -> None:
    """Kill all processes of a user, repeatedly, because one may start another before it is killed. Does nothing for a
    user in the machine's user list. Run it in a thread: that list may be on another machine, which may be slow."""
    if user_cleanup.is_listed(uid):
        return
    for _ in range(_LOOKS):
        if not user_cleanup.kill_processes(uid):
            break
        time.sleep(_LOOK_SECONDS)


def _clear_user(uid: int) -> None:
    _end_processes(uid)
    if not user_cleanup.is_listed(uid):
        user_cleanup.remove_files(uid)
        ipc_cleanup.remove_memory(uid)


def _subject(node: Node, loaded: Loaded) -> Subject:
    return Subject(
        # A command in the job itself counts like a file in its folder.
        kind=loaded.kind or ReferenceKind.LOCAL,
        reference=loaded.reference or "the job's own command",
        name=node.call.name,
        path=node.path,
        origin=INSERTED if node.is_inserted else node.call.origin,
        digest=loaded.digest or "",
        commit=loaded.commit,
        version=loaded.version,
        real=loaded.real,
    )


def _is_read(file: str) -> bool:
    """True for the name of a file that a step only reads: its script, inputs or command, or a file variable."""
    suffix = file.partition(".")[2]
    return not suffix or suffix.startswith(("script", "inputs", "command"))


def _is_for(file: str, steps: Collection[str]) -> bool:
    """True if the file with this name belongs to one of these steps, or to no step, such as a file variable."""
    name, _, suffix = file.partition(".")
    return name in steps or not (suffix and is_step_name(name))
