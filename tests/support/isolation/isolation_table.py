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


@dataclass(frozen=True, slots=True)
class Promise:
    """An attack of a hostile job, and its expected result in each mode."""

    key: str
    """Also the name of the attack's function in `hostile`, with _ instead of the dot."""
    text: str
    since: Mode
    """The first mode in the order of `Mode` that refuses the attack; all later ones do, too."""
    before: Verdict = Verdict.WORKS

    def verdict(self, mode: Mode) -> Verdict:
        modes = list(Mode)
        return Verdict.REFUSED if modes.index(mode) >= modes.index(self.since) else self.before


PROMISES = (
    Promise(
        "neighbour.files",
        "read or change the working directory, file variables and secret files of another job",
        Mode.FIRST_UID,
    ),
    Promise(
        "neighbour.processes",
        "signal or trace processes of another job, read their environment or memory",
        Mode.FIRST_UID,
    ),
    Promise("neighbour.command_lines", "see the command lines of another job", Mode.SANDBOX),
    Promise(
        "neighbour.private_memory",
        "read data in `/tmp`, `/dev/shm` and System V shared memory that another job keeps for its own user",
        Mode.FIRST_UID,
    ),
    Promise(
        "neighbour.open_memory",
        "read data in `/tmp`, `/dev/shm` and System V shared memory that another job leaves readable for all users",
        Mode.SANDBOX,
    ),
    Promise("neighbour.cache", "read or change the caches that another slot is using", Mode.FIRST_UID),
    Promise("neighbour.network", "connect to loopback ports and abstract sockets of another job", Mode.DOCKER),
    Promise("earlier.files", "read the working directory of an earlier job of another project", Mode.SANDBOX),
    Promise("earlier.cache", "read or change the caches of an earlier job of another project", Mode.SANDBOX),
    Promise(
        "earlier.memory", "read data of an earlier job in `/tmp`, `/dev/shm` and System V shared memory", Mode.SANDBOX
    ),
    Promise("earlier.processes", "find running processes of an earlier job", Mode.FIRST_UID, Verdict.UNTRIED),
    Promise("agent.files", "read or change the agent's files: requests, journals, logs, results", Mode.FIRST_UID),
    Promise("agent.own_job", "change the agent's own record of the job", Mode.FIRST_UID),
    Promise("agent.socket", "connect to the agent's socket", Mode.FIRST_UID),
    Promise("agent.processes", "signal or trace the agent and its fork server, or read their memory", Mode.FIRST_UID),
    Promise("agent.descriptors", "use open files that were inherited from the agent", Mode.ROOT),
    Promise(
        "agent.archives",
        "make the agent upload a file that the job itself cannot read",
        Mode.FIRST_UID,
        Verdict.UNTRIED,
    ),
    Promise(
        "agent.checkout",
        "make the next checkout run programs of the job with the agent's rights (hooks, filters, git configuration)",
        Mode.FIRST_UID,
        Verdict.UNTRIED,
    ),
    Promise(
        "agent.exchange",
        "make the agent run a program by writing to inputs and outputs of the platform's own steps",
        Mode.FIRST_UID,
        Verdict.UNTRIED,
    ),
    Promise(
        "agent.variables",
        "make the platform's own steps run a program with the agent's rights by variables of the job (`PATH`, `GIT_…`)",
        Mode.FIRST_UID,
        Verdict.UNTRIED,
    ),
    Promise(
        "agent.unpacking",
        "make the agent unpack artifacts of the job outside of the working directory",
        Mode.FIRST_UID,
        Verdict.UNTRIED,
    ),
    Promise(
        "agent.links",
        "make the platform empty or fill another folder through a link in place of the working directory",
        Mode.ROOT,
    ),
    Promise("manager.files", "read or change `config.toml`, the journal and the data folder", Mode.FIRST_UID),
    Promise("manager.socket", "connect to the manager's control socket", Mode.FIRST_UID),
    Promise("manager.process", "signal or trace the manager, or read its environment", Mode.FIRST_UID),
    Promise("cell.files", "read or change the cell's data folder: keys, database, traces, artifacts", Mode.FIRST_UID),
    Promise("cell.process", "signal or trace the cell, or read its environment", Mode.FIRST_UID),
    Promise(
        "cell.calls", "use the job's token for anything but the job, such as other jobs, users or settings", Mode.ROOT
    ),
    Promise("cell.repositories", "fetch another private project by git, or push anything", Mode.ROOT),
    Promise("cell.old_token", "use the token of a job that is over", Mode.ROOT),
    Promise("machine.engine", "connect to the socket of the machine's container engine", Mode.FIRST_UID),
    Promise("machine.root", "become root by a set-user-ID program of the machine", Mode.FIRST_UID),
    Promise(
        "policy.denied",
        "run a step that a rule denies, by another spelling or from inside another step",
        Mode.FIRST_UID,
        Verdict.UNTRIED,
    ),
    Promise(
        "policy.inserted",
        "skip, replace or change an inserted step with variables, exports and programs of the job",
        Mode.FIRST_UID,
        Verdict.UNTRIED,
    ),
    Promise(
        "policy.results",
        "make a result show `enforced` without enforcement, or show a step that did not run",
        Mode.FIRST_UID,
        Verdict.UNTRIED,
    ),
)
