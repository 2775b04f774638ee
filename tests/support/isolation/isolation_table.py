"""The table of promises against a hostile job, for each mode of running jobs that the suite tests.

The suite asserts it, docs/reference/security.md shows it, and a unit test compares the two.
"""

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """How the jobs of a runner run. The manager runs as root in all modes."""

    ROOT = "root"  # as the manager's own user, without isolation
    FIRST_UID = "first_uid"  # each slot has its own user
    SANDBOX = "sandbox"  # first_uid, and every step in bubblewrap
    DOCKER = "docker"  # executor docker: each job has a container


class Verdict(StrEnum):
    """The expected result of an attack."""

    REFUSED = "yes"  # promised: no variant of the attack may succeed
    WORKS = "no"  # not promised: at least one variant must succeed, which shows that the check can fail
    UNTRIED = "no, untried"  # not promised, and not asserted: it would harm the test or prove nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """An attack of a hostile job, and its expected result in each mode."""

    key: str
    """Also the name of the attack's function in `hostile`, with _ instead of the dot."""
    text: str
    root: Verdict
    first_uid: Verdict
    sandbox: Verdict
    docker: Verdict

    def verdict(self, mode: Mode) -> Verdict:
        verdict: Verdict = getattr(self, mode.value)
        return verdict


_YES, _NO, _UNTRIED = Verdict.REFUSED, Verdict.WORKS, Verdict.UNTRIED


def _promise(key: str, text: str, root: Verdict, first_uid: Verdict, sandbox: Verdict, docker: Verdict) -> Promise:
    return Promise(key=key, text=text, root=root, first_uid=first_uid, sandbox=sandbox, docker=docker)


PROMISES = (
    _promise(
        "neighbour.files",
        "read or change the working directory, file variables and secret files of another job",
        _NO,
        _YES,
        _YES,
        _YES,
    ),
    _promise(
        "neighbour.processes",
        "signal or trace processes of another job, read their environment or memory",
        _NO,
        _YES,
        _YES,
        _YES,
    ),
    _promise("neighbour.command_lines", "see the command lines of another job", _NO, _NO, _YES, _YES),
    _promise(
        "neighbour.private_memory",
        "read data in `/tmp`, `/dev/shm` and System V shared memory that another job keeps for its own user",
        _NO,
        _YES,
        _YES,
        _YES,
    ),
    _promise(
        "neighbour.open_memory",
        "read data in `/tmp`, `/dev/shm` and System V shared memory that another job leaves readable for all users",
        _NO,
        _NO,
        _YES,
        _YES,
    ),
    _promise("neighbour.cache", "read or change the caches that another slot is using", _NO, _YES, _YES, _YES),
    _promise(
        "neighbour.network",
        "connect to loopback ports and abstract sockets of another job",
        _NO,
        _NO,
        _NO,
        _YES,
    ),
    _promise("earlier.files", "read the working directory of an earlier job of another project", _NO, _NO, _YES, _YES),
    _promise("earlier.cache", "read or change the caches of an earlier job of another project", _NO, _NO, _YES, _YES),
    _promise(
        "earlier.memory",
        "read data of an earlier job in `/tmp`, `/dev/shm` and System V shared memory",
        _NO,
        _NO,
        _YES,
        _YES,
    ),
    _promise("earlier.processes", "find running processes of an earlier job", _UNTRIED, _YES, _YES, _YES),
    _promise(
        "agent.files", "read or change the agent's files: requests, journals, logs, results", _NO, _YES, _YES, _YES
    ),
    _promise("agent.own_job", "change the agent's own record of the job", _NO, _YES, _YES, _YES),
    _promise("agent.socket", "connect to the agent's socket", _NO, _YES, _YES, _YES),
    _promise(
        "agent.processes", "signal or trace the agent and its fork server, or read their memory", _NO, _YES, _YES, _YES
    ),
    _promise("agent.descriptors", "use open files that were inherited from the agent", _YES, _YES, _YES, _YES),
    _promise(
        "agent.archives", "make the agent upload a file that the job itself cannot read", _UNTRIED, _YES, _YES, _YES
    ),
    _promise(
        "agent.checkout",
        "make the next checkout run programs of the job with the agent's rights (hooks, filters, git configuration)",
        _UNTRIED,
        _YES,
        _YES,
        _YES,
    ),
    _promise(
        "agent.exchange",
        "make the agent run a program by writing to inputs and outputs of the platform's own steps",
        _UNTRIED,
        _YES,
        _YES,
        _YES,
    ),
    _promise(
        "agent.variables",
        "make the platform's own steps run a program with the agent's rights by variables of the job (`PATH`, `GIT_…`)",
        _UNTRIED,
        _YES,
        _YES,
        _YES,
    ),
    _promise(
        "agent.unpacking",
        "make the agent unpack artifacts of the job outside of the working directory",
        _UNTRIED,
        _YES,
        _YES,
        _YES,
    ),
    _promise(
        "agent.links",
        "make the platform empty or fill another folder through a link in place of the working directory",
        _YES,
        _YES,
        _YES,
        _YES,
    ),
    _promise("manager.files", "read or change `config.toml`, the journal and the data folder", _NO, _YES, _YES, _YES),
    _promise("manager.socket", "connect to the manager's control socket", _NO, _YES, _YES, _YES),
    _promise("manager.process", "signal or trace the manager, or read its environment", _NO, _YES, _YES, _YES),
    _promise(
        "cell.files", "read or change the cell's data folder: keys, database, traces, artifacts", _NO, _YES, _YES, _YES
    ),
    _promise("cell.process", "signal or trace the cell, or read its environment", _NO, _YES, _YES, _YES),
    _promise(
        "cell.calls",
        "use the job's token for anything but the job, such as other jobs, users or settings",
        _YES,
        _YES,
        _YES,
        _YES,
    ),
    _promise("cell.repositories", "fetch another private project by git, or push anything", _YES, _YES, _YES, _YES),
    _promise("cell.old_token", "use the token of a job that is over", _YES, _YES, _YES, _YES),
    _promise("machine.engine", "connect to the socket of the machine's container engine", _NO, _YES, _YES, _YES),
    _promise("machine.root", "become root by a set-user-ID program of the machine", _NO, _YES, _YES, _YES),
    _promise(
        "policy.denied",
        "run a step that a rule denies, by another spelling or from inside another step",
        _UNTRIED,
        _YES,
        _YES,
        _YES,
    ),
    _promise(
        "policy.inserted",
        "skip, replace or change an inserted step with variables, exports and programs of the job",
        _UNTRIED,
        _YES,
        _YES,
        _YES,
    ),
    _promise(
        "policy.results",
        "make a result show `enforced` without enforcement, or show a step that did not run",
        _UNTRIED,
        _YES,
        _YES,
        _YES,
    ),
)
