"""Converts a job's start request into what the engine works with: secrets, values common to all steps, step policy."""

from collections.abc import Mapping
from pathlib import Path

from remuda.lib.files import write_whole
from remuda.lib.masking import Secrets
from remuda.steps.engine import hold
from remuda.steps.job_files.data_folder import temporary_folder
from remuda.steps.job_files.job_packages import packages_folder
from remuda.steps.job_files.journal import Journal
from remuda.steps.job_tree.evaluation import Facts
from remuda.steps.policy.enforcement import PolicyEnforcement
from remuda.steps.policy.host_abilities import groups_name
from remuda.steps.policy.job_user import JobUser
from remuda.steps.policy.rules import parse_policy
from remuda.steps.policy.sandbox import Sandbox
from remuda.steps.policy.slot_cgroup import SlotGroup, limits_of
from remuda.steps.policy.step_limits import Enclosure
from remuda.steps.policy.values import Policy
from remuda.steps.process.environment import AUTHORITIES, SERVER_CA, write_files
from remuda.steps.process.limits import NO_LIMITS
from remuda.steps.process.step_files import INSERTED_EXCHANGE
from remuda.wire.proto.agent_pb2 import StartRequest


def secrets_of(request: StartRequest) -> Secrets:
    """Return the values of a request that must be masked in the log."""
    masked = (variable.value for variable in request.variables if variable.masked)
    return Secrets((*request.masks, *masked), request.mask_prefixes)


def read_facts(
    request: StartRequest,
    journal: Journal,
    enforcement: PolicyEnforcement,
    base_env: Mapping[str, str],
    *,
    is_inside: bool,
    has_begun: bool,
) -> Facts:
    """Return the values that all steps of the job share, such as variables and folders, and write its file variables
    (not if steps have run, `has_begun`, and may have changed them). `base_env`: the machine's variables that steps may
    see. `is_inside`: the steps that the user wrote never run on the machine itself."""
    is_apart = bool(request.run_as) or request.sandbox
    variables = write_files(journal.exchange, request.variables, is_written=has_begun)
    files = [variable for variable in request.variables if variable.file]
    authorities = [variable for variable in files if variable.key in AUTHORITIES] if is_inside or is_apart else []
    return Facts(
        base_env=dict(base_env) | enforcement.env if enforcement.env else base_env,
        agent_env=base_env,
        request_env=dict(request.env) | variables if request.env else variables,
        variables=variables,
        inserted_files=write_files(
            journal.folder / INSERTED_EXCHANGE, files if enforcement.insertable() else [], is_written=has_begun
        ),
        authorities=write_files(journal.folder / "authorities", authorities),
        work_dir=request.work_dir,
        folder=journal.folder,
        key=journal.key,
        hold_failed_seconds=request.hold_failed_seconds,
        deadline=journal.accepted_at + request.timeout_seconds if request.timeout_seconds else None,
        is_confined=is_inside or is_apart,
        inserted_env=_build_inserted_env(journal, enforcement.policy),
        is_apart=is_apart,
        is_inside=is_inside,
    )


def server_ca_file(folder: Path) -> Path:
    """Path of the CA file, not writable for the job, with which steps inserted by a policy verify the server."""
    return folder / "server_ca.pem"


def _build_inserted_env(journal: Journal, policy: Policy) -> dict[str, str]:
    """Return predefined variables of steps that a policy inserts. Writes the server CA file that one of them names."""
    if not policy.server_ca:
        return dict(policy.variables)
    path = server_ca_file(journal.folder)
    write_whole(path, policy.server_ca.encode())
    path.chmod(0o644)
    return {**policy.variables, SERVER_CA: str(path)}


def read_enforcement(request: StartRequest, journal: Journal, person: JobUser | None) -> PolicyEnforcement:
    """Return the object that applies the runner's step policy: it allows or denies each step, and limits it. `person`:
    the user who runs the steps; None: the agent's own user."""
    policy = parse_policy(request.policy)
    return PolicyEnforcement(
        policy=policy,
        person=person,
        job=journal.folder,
        work_dir=Path(request.work_dir),
        key=journal.key,
        slot=_find_slot(request, journal),
        has_own_user=request.own_user,
        sandbox=Sandbox(
            work_dir=request.work_dir,
            exchange=str(journal.exchange),
            inserted=str(journal.folder / INSERTED_EXCHANGE),
            packages=str(packages_folder(journal.folder)),
            inserted_packages=str(packages_folder(journal.folder, INSERTED_EXCHANGE)),
            writable=tuple(request.writable),
            hidden=_list_hidden_folders(request, journal),
            readable=(str(server_ca_file(journal.folder)),) if policy.server_ca else (),
        )
        if request.sandbox
        else None,
    )


def _find_slot(request: StartRequest, journal: Journal) -> SlotGroup | None:
    if not request.cgroup:
        return None
    limits = request.cgroup_limits
    return SlotGroup(
        f"/{request.cgroup.strip('/')}",
        limits=limits_of(limits.memory_bytes, limits.cpus, limits.pids),
        name=groups_name(journal.folder.parent.parent),
        job=journal.folder,
    )


def _list_hidden_folders(request: StartRequest, journal: Journal) -> tuple[str, ...]:
    """Return the folders that the job must not see: those in the request and, if there are any, also the temporary
    folder with the agent's socket (if the socket is in such a folder)."""
    place = temporary_folder(journal.folder.parent.parent) if request.hidden else None
    return (*request.hidden, str(place)) if place is not None else tuple(request.hidden)


def build_closing_command(
    enforcement: PolicyEnforcement, closing: hold.Closing, folder: Path, number: int
) -> tuple[list[str], dict[str, str]]:
    """Return command line and environment that run the `number`th postponed cleanup step: as the user of the job's
    steps if `closing.is_jobs`, else as the agent's. May write the environment to a file in `folder`."""
    if not closing.is_jobs or enforcement.person is None:
        return list(closing.argv), dict(closing.env)
    enclosure = Enclosure(
        limits=NO_LIMITS,
        work_dir=Path(closing.work_dir),
        spec={"uid": enforcement.person.uid, "gid": enforcement.person.gid},
        person=enforcement.person,
    )
    return enclosure.wrap(closing.argv, closing.env, folder / f"closing-{number}.env")
