"""Finds the processes of a job in /proc, and kills them until none is left. Keeps no state of jobs.

A process belongs to the job if it has the job's mark (a resource limit or variable with the job's key, see `marks`), is
in a session that one of its steps led, or descends from such a process. Orphans become children of the agent (the
*subreaper*), so its descendants are searched; the whole machine only with `everywhere` (such as for a job that an
earlier agent began), or if the kernel does not list children. A hostile program can change its mark but not its user.
So if no other job of the agent has the job's user, all descendants of the agent with that user belong to the job, and
marks on processes of other users (except the agent's) are ignored.

A program may start processes as fast as they are killed. So all are first stopped (SIGSTOP), because a stopped process
cannot fork, and killed when no new one appears. If zombies show that processes live for a shorter time than a search
takes, the search is repeated. The whole machine is searched only when nothing new appears among the descendants: on a
machine with many processes that takes longer than such a process lives. All of this runs in threads, so that it does
not delay other jobs."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from remuda.steps.process import marks

LED: set[int] = set()
"""Children of this process that lead running steps, or that it has started for itself. Other code reaps them."""
_QUIET_LOOKS = 10
"""How many searches in a row must find nothing before a job is known to be dead, if there was a process before."""
_PAUSE_SECONDS = 0.002
_MOST_NAMED = 5
_SURE_LOOKS = 1000
"""After this many searches there is a pause after each further one, even while new processes appear."""


@dataclass(frozen=True, slots=True)
class Stat:
    state: str
    parent: int
    session: int
    start: int
    cpu_ticks: int
    """Includes children that it has waited for."""
    resident_pages: int

    @property
    def is_dead(self) -> bool:
        """True if the process looks like a zombie. Threads other than the first may still run (see `has_ended`)."""
        return self.state in "ZX"


class JobProcesses:
    def __init__(
        self,
        key: str,
        sessions: Mapping[int, Collection[tuple[int, int]]],
        *,
        everywhere: bool = False,
        uid: int | None = None,
        is_only_user: Callable[[], bool] = lambda: False,
    ) -> None:
        """`key`: the job's key, in the mark of its processes. `sessions`: ids of sessions that the job's steps left
        running, each with process id and start time of the processes seen in it; when all have ended, it is ignored, as
        its id may be reused. `everywhere`: search the whole machine, not only the agent's descendants. `uid`: the user
        of the steps, if not the agent's. `is_only_user`, called in a thread: no other job has this user."""
        self._key = key
        self._sessions = sessions
        self._uid = uid
        self._is_only_user = is_only_user
        self.everywhere = everywhere
        self._known: dict[int, int] = {}
        """All processes that were ever found, with their start times. Their parents may have ended since."""
        self._dead: set[int] = set()

    def is_quiet(self) -> bool:
        """Cheap check before a search. Returns True if no search is needed: the job has left no known session running,
        and the agent has no children from which processes of the job may descend. Always False with `everywhere`."""
        return not self.everywhere and not self._sessions and not self._roots()

    async def look(self) -> dict[int, int]:
        return await asyncio.to_thread(self._look_everywhere if self._must_look_everywhere() else self._look_below)

    def kill(self, seconds: float) -> tuple[str, ...]:
        """Stop and kill the job's processes, for at most `seconds`. Returns descriptions of those that still run."""
        until = time.monotonic() + seconds
        stopped: set[tuple[int, int]] = set()
        quiet = busy = 0
        while True:
            dead_before = len(self._dead)
            living = set(self._look_below().items())
            if living <= stopped and len(self._dead) == dead_before and self._must_look_everywhere():
                living |= set(self._look_everywhere().items())
            for process in living - stopped:
                send(*process, signal.SIGSTOP)
            if living <= stopped:
                for process in living:
                    send(*process, signal.SIGKILL)
            is_new = not living <= stopped
            stopped |= living
            quiet = quiet + 1 if not living and len(self._dead) == dead_before else 0
            if quiet >= (_QUIET_LOOKS if self._known or self._dead else 1):
                return ()
            if time.monotonic() >= until:
                if self._must_look_everywhere():
                    living |= set(self._look_everywhere().items())
                return describe([pid for pid, _ in living])
            busy += 1
            if (not is_new and len(self._dead) == dead_before) or busy > _SURE_LOOKS:
                time.sleep(_PAUSE_SECONDS)

    def _roots(self) -> list[int]:
        """Return the agent's children from which processes of the job may descend. Children that lead the session of a
        running step are left out, unless the job has left processes in that session before."""
        return [pid for pid in children_of(os.getpid()) if pid not in LED or pid in self._sessions]

    def _must_look_everywhere(self) -> bool:
        """True if the whole machine must be searched: the agent's descendants may not include all processes."""
        return self.everywhere or not _can_list_children()

    def _look_below(self) -> dict[int, int]:
        """Return process ids and start times of the job's processes among the agent's descendants."""
        return self._select(_walk(self._roots())) if _can_list_children() else {}

    def _look_everywhere(self) -> dict[int, int]:
        return self._select(_table(all_processes()))

    def _select(self, table: dict[int, Stat]) -> dict[int, int]:
        """Return id and start time of living processes of the job in `table`; reap ended children of the agent."""
        own = os.getpid()
        table.pop(own, None)
        sessions = {
            session
            for session, processes in self._sessions.items()
            if any(pid in table and table[pid].start == start for pid, start in processes)
        }
        members = {
            pid
            for pid, stat in table.items()
            if stat.session in sessions or self._known.get(pid) == stat.start or self._has_mark(pid)
        } | self._find_of_user(table)
        _add_descendants(members, table)
        living = {pid: table[pid].start for pid in members if not has_ended(pid, table[pid])}
        for pid in members - living.keys():
            self._dead.add(pid)
            if table[pid].parent == own and pid not in LED:
                reap(pid)
        self._known |= living
        return living

    def _has_mark(self, pid: int) -> bool:
        if not marks.has_mark(pid, self._key):
            return False
        return self._uid is None or read_uids(pid) <= {self._uid, os.geteuid()}

    def _find_of_user(self, table: Mapping[int, Stat]) -> set[int]:
        """Return the agent's descendants that run as the job's user; empty if another job has that user, too."""
        if self._uid is None:
            return set()
        pids = {pid for pid in _find_descendants(os.getpid(), table) if self._uid in read_uids(pid)}
        # Asked last: a job that begins now has no process among those found above.
        return pids if pids and self._is_only_user() else set()


def find_members(users: Mapping[str, int | None]) -> dict[str, list[int]]:
    """Search the machine once and return the process ids of each job. `users`: the keys of all jobs of the agent, each
    with the user that its steps run as, or None for the agent's own user."""
    table = _table(all_processes())
    marked = marks.find_marked(table, users)
    uids = {pid: read_uids(pid) for pid in table}
    owners = find_owners(users, marked, uids, below=_find_descendants(os.getpid(), table))
    return assign_members(users, {pid: stat.parent for pid, stat in table.items()}, owners)


def find_owners(
    users: Mapping[str, int | None],
    marked: Mapping[int, str],
    uids: Mapping[int, frozenset[int]],
    *,
    below: Collection[int],
) -> dict[int, str]:
    """Return by process id the key of the job it belongs to: a job whose mark it has, if it runs as a user allowed for
    that job, or, if it is in `below` (the agent's descendants), the only job that has its user. `users`: user of each
    job; `marked`: job key of each process with a mark; `uids`: users of each process."""
    agent = os.geteuid()
    counts = Counter(uid for uid in users.values() if uid is not None)
    by_user = {uid: key for key, uid in users.items() if uid is not None and counts[uid] == 1}
    owners = {}
    for pid, own in uids.items():
        key = marked.get(pid)
        if key is not None:
            user = users[key]
            # A job of the agent's user may have processes of any user, except of those that other jobs have.
            is_allowed = own.isdisjoint(counts) if user is None else own <= {user, agent}
            key = key if is_allowed else None
        if key is None and pid in below:
            key = next((by_user[uid] for uid in own if uid in by_user), None)
        if key is not None:
            owners[pid] = key
    return owners


def assign_members(
    keys: Collection[str], parents: Mapping[int, int], owners: Mapping[int, str]
) -> dict[str, list[int]]:
    """Return the process ids of each job in `keys`. `owners` maps process ids to jobs. A process that is not in
    `owners` belongs to the job of its nearest ancestor there, if it has one. `parents`: parent of each process."""
    members: dict[str, list[int]] = {key: [] for key in keys}
    for pid in parents:
        above, passed = pid, set()
        while above in parents and above not in owners and above not in passed:
            passed.add(above)
            above = parents[above]
        if above in owners:
            members[owners[above]].append(pid)
    return members


def send(pid: int, start: int, number: int) -> None:
    """Send the signal `number` to a process, unless its process id has been reused: the start time must be `start`."""
    try:
        opened = os.pidfd_open(pid)
    except (OSError, AttributeError):  # the process is gone, or the kernel has no pidfd
        if start_time(pid) == start:
            with suppress(OSError):
                os.kill(pid, number)
        return
    try:
        if start_time(pid) == start:
            with suppress(OSError):
                signal.pidfd_send_signal(opened, number)
    finally:
        os.close(opened)


def reap(pid: int) -> None:
    """Reap a child process if it has ended. Only for children that no other code waits for."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def children() -> list[int]:
    """Return the child processes of this process for which no other code waits."""
    return [pid for pid in children_of(os.getpid()) if pid not in LED]


def children_of(parent: int) -> list[int]:
    """Return child processes of a process; all processes of the machine if the kernel does not list children."""
    pids: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{parent}/task"):
            with suppress(FileNotFoundError), open(f"/proc/{parent}/task/{thread}/children") as file:
                pids += map(int, file.read().split())
    except OSError:
        return []
    return pids if pids or _can_list_children() else all_processes()


def all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_stat(pid: int) -> Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before may hold anything
    return Stat(
        state=fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        start=int(fields[19]),
        cpu_ticks=sum(map(int, fields[11:15])),
        resident_pages=int(fields[21]),
    )


def read_uids(pid: int) -> frozenset[int]:
    """All user ids of a process (a set-user-id program has several); empty if it does not exist."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            line = next(line for line in file if line.startswith(b"Uid:"))
    except (OSError, StopIteration):
        return frozenset()
    return frozenset(map(int, line.split()[1:]))


def start_time(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot, to notice a reused process id; None if it does not exist."""
    stat = read_stat(pid)
    return None if stat is None else stat.start


@cache
def _can_list_children() -> bool:
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _walk(roots: Iterable[int]) -> dict[int, Stat]:
    table: dict[int, Stat] = {}
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in table and (stat := read_stat(pid)) is not None:
            table[pid] = stat
            waiting += children_of(pid)
    return table


def _table(pids: Iterable[int]) -> dict[int, Stat]:
    return {pid: stat for pid in pids if (stat := read_stat(pid)) is not None}


def _add_descendants(members: set[int], table: Mapping[int, Stat]) -> None:
    below: dict[int, list[int]] = {}
    for pid, stat in table.items():
        below.setdefault(stat.parent, []).append(pid)
    waiting = list(members)
    while waiting:
        new = [pid for pid in below.get(waiting.pop(), ()) if pid not in members]
        members.update(new)
        waiting += new


def _find_descendants(pid: int, table: Mapping[int, Stat]) -> set[int]:
    pids = {pid}
    _add_descendants(pids, table)
    return pids - {pid}


def has_ended(pid: int, stat: Stat) -> bool:
    """True if all threads have ended. A process looks like a zombie when its first thread ends, while others run."""
    if not stat.is_dead:
        return False
    try:
        return len(os.listdir(f"/proc/{pid}/task")) < 2
    except OSError:
        return True


def describe(pids: Collection[int]) -> tuple[str, ...]:
    """Return id, name and state of at most `_MOST_NAMED` processes that still exist, for logs, and how many more."""
    descriptions = [_description(pid) for pid in sorted(pids) if read_stat(pid) is not None]
    return tuple(descriptions[:_MOST_NAMED]) + (
        (f"{len(descriptions) - _MOST_NAMED} more",) if len(descriptions) > _MOST_NAMED else ()
    )


def _description(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", errors="replace") as file:
            name = "".join(letter if letter.isprintable() else "?" for letter in file.read().strip())
    except OSError:
        name = "?"
    stat = read_stat(pid)
    return f"{pid} ({name}, state {stat.state if stat else '?'})"


def describe_survivors(survivors: Sequence[str]) -> str:
    return f"WARNING: processes of the job cannot be ended, and are left on its machine: {', '.join(survivors)}"
