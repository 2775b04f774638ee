"""Conformance checks of the calls of a running plugin, in the order of an instance's life."""

import asyncio
import os
import signal
import time
from contextlib import suppress

from google.protobuf.empty_pb2 import Empty
from grpclib.health.v1.health_grpc import HealthStub
from grpclib.health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from remuda.fleeting.client import translate_errors
from remuda.fleeting.codec import UNKNOWN_NUMBER, connect_info_from_wire
from remuda.fleeting.conformance.life import OWNER, Life, format_states, is_going, need, state_name
from remuda.fleeting.conformance.values import ONLY_SSH, Checks, FailedError, NotedError, Trial
from remuda.fleeting.errors import PermanentError, TemporaryError, UnsupportedError
from remuda.fleeting.port import Capability
from remuda.lib.waiting import wait_for_event
from remuda.wire.proto import fleeting_pb2 as pb

NOBODY = "remuda-check-there-is-no-such-instance"
AT_ONCE = 20
HELD_UP_SECONDS = 5.0
ASK_SECONDS = 5.0
"""How long an accepted instance may be missing before the plugin is asked for its quota."""
ONCE_MORE_SECONDS = 5.0
"""Time limit of the clean-up if deletions did not end in time before."""
PROTOCOLS = ("", "ssh", "winrm", "winrm+https")
CHECKS = Checks()
_CREATING, _RUNNING = pb.State.Value("creating"), pb.State.Value("running")


@CHECKS.add(
    "answers Init",
    expected="Init works, and returns an id and the maximum number of instances",
    to_do="correct --config if the text names a setting; else return an id, and a max_size (large: no limit)",
    is_needed=True,
)
async def init(life: Life) -> None:
    await life.begin()
    need(life.info.id, "the answer has no id")
    need(life.info.max_size > 0, "the answer has max_size 0: no instance would ever be created")
    count = life.trial.instances
    need(life.info.max_size >= count, f"max_size is {life.info.max_size}, and {count} instances are to be created")


@CHECKS.add(
    "reports its health",
    expected="grpc.health.v1.Health says SERVING for the service `plugin`, or is not implemented",
    to_do="serve the health of the service `plugin`",
)
async def health(life: Life) -> None:
    assert life.channel is not None
    with suppress(UnsupportedError):
        answer = await life.call("Health", HealthStub(life.channel).Check, HealthCheckRequest(service="plugin"))
        need(answer.status == HealthCheckResponse.SERVING, f"the health of the service `plugin` is {answer.status}")


@CHECKS.add(
    "lists its instances",
    expected="Update shows every instance once, with a name and a state from 0 to 7",
    to_do="stream all instances in every Update; show an instance that cannot be looked up now with its last"
    " state (in Python: UNKNOWN), because an instance that is left out counts as gone",
    is_needed=True,
)
async def update(life: Life) -> None:
    life.before = await life.update()
    _check_states(life.before)


@CHECKS.add(
    "makes instances",
    expected="Increase(n) accepts between 1 and n of them",
    to_do="return how many the provider accepted, never more than were asked for; an error where it accepts none",
    is_needed=True,
)
async def increase(life: Life) -> None:
    count = life.trial.instances
    answer = await life.increase(count)
    life.accepted = min(answer.succeeded, count)
    need(answer.succeeded <= count, f"asked for {count} it accepted {answer.succeeded}")
    need(answer.succeeded > 0, f"asked for {count} it accepted none, and gave no reason")


@CHECKS.add(
    "shows what it makes",
    expected="Update shows exactly as many new instances as were accepted",
    to_do="show an instance as creating as soon as the provider knows of it; make no more than were accepted",
    is_needed=True,
)
async def shows(life: Life) -> None:
    what, patience = f"for {_instances(life.accepted)} to appear", _patience(life.trial)

    def are_shown(states: dict[str, int]) -> bool:
        return len(states) >= life.accepted

    first = min(ASK_SECONDS, patience)
    states = await life.until(what, are_shown, first)
    if not are_shown(states):
        life.made = list(states)
        await _ask_for_quota(life)
        states = await life.until(what, are_shown, patience - first, since=first)
    life.made = list(states)
    need(
        len(states) <= life.accepted,
        f"{life.accepted} were accepted, and {len(states)} appeared: {format_states(states)}",
    )
    need(len(states) == life.accepted, f"{life.accepted} were accepted, Update shows of them: {format_states(states)}")
    _check_states(states)


@CHECKS.add(
    "instances start",
    expected="creating becomes running within --boot-seconds, and stays so",
    to_do="map the provider's states to creating and running; raise --boot-seconds if it is only slow",
)
async def runs(life: Life) -> None:
    past: dict[str, int] = {}

    def is_over(states: dict[str, int]) -> bool:
        for name in life.made:
            state = states.get(name, -1)
            if state == UNKNOWN_NUMBER:
                continue
            if past.get(name) == _RUNNING != state:
                raise FailedError(
                    f"{name} was running, and is {_or_missing(state)} although its deletion was not requested"
                )
            if state not in (_CREATING, _RUNNING):
                raise FailedError(f"{name} is {_or_missing(state)} although its deletion was not requested")
            past[name] = state
        return all(past.get(name) == _RUNNING for name in life.made)

    states = await life.until(f"for {_instances(len(life.made))} to run", is_over, life.trial.boot_seconds)
    if not is_over(states):
        text = f"{format_states(states)}, after {life.trial.boot_seconds:.0f} s"
        raise NotedError(text) if not life.trial.boot_seconds else FailedError(text)


@CHECKS.add(
    "says how to connect",
    expected="ConnectInfo has a connector with keepalive and timeout above 0, and an address",
    to_do="begin with the connector that came with Init, complete it, and return it with the instance's addresses",
)
async def connect_info(life: Life) -> None:
    odd = ""
    life.can_connect = False
    for name in life.made:
        request = pb.ConnectInfoRequest(instance=name)
        answer = await life.call("ConnectInfo", life.stub.ConnectInfo, request)
        need(answer.HasField("connector"), f"the answer for {name} has no connector; gitlab-runner crashes on that")
        connector = answer.connector
        need(
            answer.InternalAddr or answer.ExternalAddr,
            f"the answer for {name} has no address",
        )
        need(connector.keepalive > 0, f"keepalive is {connector.keepalive}; 0 makes gitlab-runner loop without a pause")
        need(
            connector.timeout > 0,
            f"timeout is {connector.timeout}; 0 makes every login of gitlab-runner's fail",
        )
        need(connector.protocol in PROTOCOLS, f"the protocol is {connector.protocol!r}, which is unknown")
        need(0 <= connector.protocol_port < 65536, f"the port is {connector.protocol_port}")
        need(answer.expires == 0 or answer.expires > time.time(), f"expires is {answer.expires}, which is in the past")
        life.can_connect = True
        for address in (answer.InternalAddr, answer.ExternalAddr):
            if set(address) & set("/\\ "):
                odd = f"the address of {name} is {address!r}; it has to be a name or an IP address, or that and :PORT"
        if connector.protocol not in ("", "ssh"):
            raise NotedError(f"the protocol is {connector.protocol}", to_do=ONLY_SSH)
    if odd:
        raise NotedError(odd)


@CHECKS.add(
    "an unknown instance",
    expected="ConnectInfo of an unknown instance is an error",
    to_do="look the instance up, and answer with an error that names it",
)
async def nobody(life: Life) -> None:
    try:
        answer = await life.call("ConnectInfo", life.stub.ConnectInfo, pb.ConnectInfoRequest(instance=NOBODY))
    except (TemporaryError, PermanentError) as error:
        need(life.is_running and not isinstance(error, UnsupportedError), str(error))
        return
    address = answer.InternalAddr or answer.ExternalAddr
    raise FailedError(f"an unknown instance has the address {address!r}")


@CHECKS.add(
    "heartbeat",
    expected="Heartbeat succeeds for running instances and is an error for others, or is not implemented",
    to_do="ask the provider whether the instance is healthy; otherwise dead machines get jobs",
)
async def heartbeat(life: Life) -> None:
    with suppress(UnsupportedError):
        for name in life.made:
            await life.call("Heartbeat", life.stub.Heartbeat, pb.HeartbeatRequest(instance=name))
        try:
            await life.call("Heartbeat", life.stub.Heartbeat, pb.HeartbeatRequest(instance=NOBODY))
        except UnsupportedError:
            raise
        except (TemporaryError, PermanentError):
            return
        raise NotedError("Heartbeat of a missing instance must be an error")


@CHECKS.add(
    "suspends and resumes",
    expected="if it announces suspend_resume, both calls work; if not, Suspend does no harm",
    to_do="announce suspend_resume only with both calls; show suspended, and running again",
)
async def suspend(life: Life) -> None:
    if Capability.SUSPEND_RESUME not in life.info.capabilities:
        with suppress(TemporaryError, PermanentError):
            await life.call("Suspend", life.stub.Suspend, pb.SuspendRequest(instances=[NOBODY]))
        await life.update()
        return
    request = pb.SuspendRequest(instances=life.made)
    answer = await life.call("Suspend", life.stub.Suspend, request)
    need(set(answer.succeeded) == set(life.made), f"Suspend of {life.made} accepted {list(answer.succeeded)}")
    await _reach(life, pb.State.Value("suspended"))
    answer = await life.call("Resume", life.stub.Resume, pb.ResumeRequest(instances=life.made))
    need(set(answer.succeeded) == set(life.made), f"Resume of {life.made} accepted {list(answer.succeeded)}")
    await _reach(life, _RUNNING)


@CHECKS.add(
    "other abilities",
    expected="what it announces of remuda.stats and remuda.recover works",
    to_do="correct the call that is named: Stats (no price below 0), or Recover (every instance with an owner's tag);"
    " announce only what is implemented",
)
async def own_abilities(life: Life) -> None:
    if Capability.STATS in life.info.capabilities:
        stats = await life.call("Stats", life.abilities.Stats, Empty())
        need(not stats.HasField("hourly_price") or stats.hourly_price >= 0, f"the price is {stats.hourly_price}")
    if Capability.RECOVER in life.info.capabilities:
        owners: dict[str, str] = {}
        with translate_errors("Recover"):
            async with life.abilities.Recover.open(timeout=life.trial.call_seconds) as stream:
                await stream.send_message(Empty(), end=True)
                async for tagged in stream:
                    owners[tagged.instance] = tagged.owner
        missing = sorted(set(life.made) - owners.keys())
        need(not missing, f"Recover does not find {', '.join(missing)}, which Update shows")
        foreign = {owners[name] for name in life.made} - {OWNER}
        if foreign:
            raise NotedError(f"Init named the owner {OWNER!r}, Recover names {sorted(foreign)}")


@CHECKS.add(
    "answers meanwhile",
    expected=f"while Increase or Update goes on, Health is answered within {HELD_UP_SECONDS:.0f} s",
    to_do="let no call hold up the others: in Python put `await asyncio.to_thread(...)` around a library that"
    " blocks; in Go hold no lock while the provider is asked",
)
async def meanwhile(life: Life) -> None:
    """Check that Health was answered within `HELD_UP_SECONDS` during Increase and Update; otherwise adds a remark."""
    held_up = [f"{what} for {seconds:.1f} s" for what, seconds in life.held_up.items() if seconds >= HELD_UP_SECONDS]
    if held_up:
        raise NotedError(f"it answered no other call during {', during '.join(held_up)}")


@CHECKS.add(
    "many calls at once",
    expected=f"{AT_ONCE} Updates and as many ConnectInfos at the same time are all answered right",
    to_do="guard what calls share (a lock), and do not change it while it is read; if they were only too slow, let"
    " none wait for the others",
)
async def at_once(life: Life) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            updates = [group.create_task(life.update(), name=f"update {number}") for number in range(AT_ONCE)]
            for number in range(AT_ONCE if life.can_connect else 0):
                request = pb.ConnectInfoRequest(instance=life.made[number % len(life.made)])
                call = life.call("ConnectInfo", life.stub.ConnectInfo, request)
                group.create_task(call, name=f"connect info {number}")
    except ExceptionGroup as errors:
        raise FailedError(f"one of them failed: {errors.exceptions[0]}") from errors
    for task in updates:
        missing = sorted(set(life.made) - task.result().keys())
        need(not missing, f"one of {AT_ONCE} Updates at the same time did not show {', '.join(missing)}")


@CHECKS.add(
    "leaves Ctrl-C to its host",
    expected="SIGINT does not end it",
    to_do="ignore SIGINT: it reaches all programs of a terminal, and the host decides",
)
async def interrupt(life: Life) -> None:
    assert life.process is not None
    os.killpg(life.process.pid, signal.SIGINT)
    await wait_for_event(life.process.ended, within_seconds=0.3)
    await life.update()


@CHECKS.add(
    "can be logged in to",
    expected="SSH with what ConnectInfo says runs a command on the instance",
    to_do="try the same with ssh by hand; give connector_config in --config if user and key are the operator's",
)
async def log_in(life: Life) -> None:
    from remuda.fleeting.conformance import login

    request = pb.ConnectInfoRequest(instance=life.made[0])
    info = connect_info_from_wire(await life.call("ConnectInfo", life.stub.ConnectInfo, request))
    await login.log_in(info, seconds=_patience(life.trial))


@CHECKS.add(
    "remembers its instances",
    expected="killed and started again, Update shows the same instances",
    to_do="ask the provider (by a tag, or a group) instead of remembering: a plugin is started again at any time",
    is_needed=True,
)
async def kill(life: Life) -> None:
    assert life.process is not None
    life.process.kill()
    await life.process.ended.wait()
    await life.begin()
    remaining = set(await life.new())
    lost = sorted(set(life.made) - remaining)
    if lost:
        life.made = [name for name in life.made if name in remaining]
        if not life.made:
            await life.increase(1)
            life.made = list(await life.until("for an instance to appear", bool, _patience(life.trial)))
        raise NotedError(f"{', '.join(lost)} is not known any more, and may still be at the provider")


@CHECKS.add(
    "deletes instances",
    expected="Decrease accepts the instances that it is asked about, and no others",
    to_do="return the names that the provider accepted; an error where it accepts none",
)
async def decrease(life: Life) -> None:
    names = life.made
    answer = await life.decrease(names)
    ghosts = sorted(set(answer.succeeded) - set(names))
    need(not ghosts, f"it accepted {', '.join(ghosts)}, which it was not asked about")
    refused = sorted(set(names) - set(answer.succeeded))
    need(not refused, f"it did not accept {', '.join(refused)}, and gave no reason")


@CHECKS.add(
    "deletes only once",
    expected="Decrease of instances that are going already is no error",
    to_do="take an instance that is gone, or going, for deleted; hosts ask again after a restart",
)
async def again(life: Life) -> None:
    answer = await life.decrease(life.made)
    ghosts = sorted(set(answer.succeeded) - set(life.made))
    need(not ghosts, f"it accepted {', '.join(ghosts)}, which it was not asked about")


@CHECKS.add(
    "deletes nothing else",
    expected="Decrease of an unknown instance does no harm",
    to_do="look instances up by their names before deleting anything",
)
async def decrease_nobody(life: Life) -> None:
    try:
        answer = await life.call("Decrease", life.stub.Decrease, pb.DecreaseRequest(instances=[NOBODY]))
    except (TemporaryError, PermanentError):
        answer = pb.DecreaseResponse()
    ghosts = sorted(set(answer.succeeded) - {NOBODY})
    need(not ghosts, f"asked to delete an unknown instance it accepted {', '.join(ghosts)}")
    await life.update()


@CHECKS.add(
    "instances disappear",
    expected="an accepted instance becomes deleting, then deleted or missing, and stays so",
    to_do="map the provider's states; show no instance as running after its deletion was accepted",
)
async def disappear(life: Life) -> None:
    past: set[str] = set()

    def are_gone(states: dict[str, int]) -> bool:
        past.update(name for name in life.made if name not in states or is_going(states[name]))
        back = sorted(name for name in past if name in states and not is_going(states[name]))
        need(not back, f"{', '.join(back)} is listed again after its deletion had begun")
        return all(states.get(name) in (None, *_ENDED) for name in life.made)

    what = f"for {_instances(len(life.made))} to be deleted"
    states = await life.until(what, are_gone, _patience(life.trial) if life.going else 0.0)
    life.is_given_up = not are_gone(states)
    need(not life.is_given_up, f"not deleted: {format_states(states)}")


@CHECKS.add(
    "leaves the others alone",
    expected="instances that existed before still exist",
    to_do="delete only what Decrease names",
)
async def others(life: Life) -> None:
    before = {name: state for name, state in (life.before or {}).items() if not is_going(state)}
    missing = sorted(before.keys() - (await life.update()).keys())
    need(not missing, f"{', '.join(missing)} existed before, and is missing now")


@CHECKS.add(
    "goes on after Shutdown",
    expected="InstanceGroup.Shutdown cleans up, and the plugin still answers",
    to_do="end only after GRPCController.Shutdown; InstanceGroup.Shutdown is for what was made for all instances",
)
async def shutdown(life: Life) -> None:
    with suppress(UnsupportedError):
        await life.call("Shutdown", life.stub.Shutdown, pb.Empty())
    await life.update()


@CHECKS.add(
    "keeps stdout clean",
    expected="nothing is printed to stdout after the handshake",
    to_do="log to stderr; stdout belongs to the handshake, and some hosts do not read on",
)
async def stdout(life: Life) -> None:
    need(not life.stray, f"{len(life.stray)} lines were printed to stdout, the first: {life.stray[:1]}")


@CHECKS.add(
    "nothing is left",
    expected="all instances that were created are deleted",
    to_do="delete them by hand at the provider: they may cost money",
)
async def clean_up(life: Life) -> None:
    if life.before is None:
        return  # nothing was made
    if not life.is_running:
        await life.begin()
    patience = _patience(life.trial) if life.is_in_doubt else 0.0
    states = await life.until(
        "for instances of an Increase without an answer, to delete them",
        lambda new: any(not is_going(state) for state in new.values()),
        patience,
    )
    remaining, patience = [name for name, state in states.items() if not is_going(state)], 0.0
    if remaining:
        with suppress(TemporaryError, PermanentError):
            if (await life.decrease(remaining)).succeeded:
                patience = ONCE_MORE_SECONDS if life.is_given_up else _patience(life.trial)
    states = await life.until(
        f"for {_instances(len(remaining))} to be deleted",
        lambda new: all(is_going(state) for state in new.values()),
        patience,
    )
    still = {name: state for name, state in states.items() if not is_going(state)}
    need(not still, f"not deleted: {format_states(still)}")


_ENDED = (pb.State.Value("deleted"), pb.State.Value("timeout"))


async def _ask_for_quota(life: Life) -> None:
    """End the check if the plugin says that its quota has no room for the instances that are waited for."""
    if Capability.STATS not in life.info.capabilities:
        return
    try:
        stats = await life.call("Stats", life.abilities.Stats, Empty())
    except (TemporaryError, PermanentError):
        return  # a check of its own reports it
    needed = len(life.before or {}) + life.accepted
    if stats.HasField("quota") and stats.quota < needed:
        raise FailedError(
            f"{_instances(life.accepted)} accepted, but Stats says a quota of {stats.quota}, and {needed} would exist",
            to_do="accept no more in Increase than the quota allows, or raise the quota at the provider",
        )


def _instances(count: int) -> str:
    return "1 instance" if count == 1 else f"{count} instances"


def _patience(trial: Trial) -> float:
    return max(trial.boot_seconds, trial.least_seconds)


def _check_states(states: dict[str, int]) -> None:
    for name, state in states.items():
        need(name, "an instance has no name")
        need(state in (*pb.State.values(), UNKNOWN_NUMBER), f"{name} is in state {state}, which hosts do not know")


def _or_missing(state: int) -> str:
    return "missing" if state < 0 else state_name(state)


async def _reach(life: Life, target: int) -> None:
    def is_over(new: dict[str, int]) -> bool:
        gone = {name: new.get(name, -1) for name in life.made if is_going(new.get(name, pb.State.Value("deleted")))}
        for name, state in gone.items():
            raise FailedError(f"{name} is {_or_missing(state)} and cannot become {state_name(target)}")
        return all(new.get(name) == target for name in life.made)

    what = f"for {_instances(len(life.made))} to be {state_name(target)}"
    new_states = await life.until(what, is_over, _patience(life.trial))
    states = {name: new_states.get(name, -1) for name in life.made}
    need(set(states.values()) == {target}, f"not {state_name(target)} in the end: {format_states(states)}")
