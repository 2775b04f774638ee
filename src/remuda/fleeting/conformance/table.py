"""Descriptions of the checks of a running plugin: what is expected, and what to do otherwise."""

from remuda.fleeting.conformance import calls
from remuda.fleeting.conformance.values import Check, Trial


def checks(trial: Trial) -> tuple[Check, ...]:
    """The checks of a trial in their order; the login only if it is wanted."""
    return tuple(check for check in _CHECKS if trial.is_connecting or check.run is not calls.log_in)


_CHECKS = (
    Check(
        name="begins",
        expected="Init works, and tells an id and how many instances there may be",
        to_do="correct --config if the text names a setting; else return an id, and a max_size (large: no limit)",
        run=calls.init,
        is_needed=True,
    ),
    Check(
        name="is well",
        expected="grpc.health.v1.Health says SERVING for the service `plugin`, or is not there",
        to_do="serve the health of the service `plugin`",
        run=calls.health,
    ),
    Check(
        name="lists its instances",
        expected="Update shows every instance once, with a name and a state from 0 to 7",
        to_do="stream all instances in every Update; show one that cannot be looked up just now as it was last (in"
        " Python: as UNKNOWN), for what is left out counts as gone",
        run=calls.update,
        is_needed=True,
    ),
    Check(
        name="makes instances",
        expected="Increase(n) accepts between 1 and n of them",
        to_do="return how many the provider accepted, never more than were asked for; an error where it accepts none",
        run=calls.increase,
        is_needed=True,
    ),
    Check(
        name="shows what it makes",
        expected="Update shows exactly as many new instances as were accepted",
        to_do="show an instance as creating as soon as the provider knows of it; make no more than were accepted",
        run=calls.shows,
        is_needed=True,
    ),
    Check(
        name="instances come to run",
        expected="creating becomes running within --boot-seconds, and stays so",
        to_do="map the provider's states to creating and running; raise --boot-seconds if it is only slow",
        run=calls.runs,
    ),
    Check(
        name="says how to connect",
        expected="ConnectInfo has a connector with keepalive and timeout above 0, and an address",
        to_do="begin with the connector that came with Init, complete it, and return it with the instance's addresses",
        run=calls.connect_info,
    ),
    Check(
        name="an instance that is not there",
        expected="ConnectInfo of an unknown instance is an error",
        to_do="look the instance up, and answer with an error that names it",
        run=calls.nobody,
    ),
    Check(
        name="heartbeat",
        expected="Heartbeat is fine for instances that run and an error for others, or is not there",
        to_do="ask the provider whether the instance is well; without that machines that died are given jobs",
        run=calls.heartbeat,
    ),
    Check(
        name="suspends and resumes",
        expected="if it announces suspend_resume, it does; if not, Suspend does no harm",
        to_do="announce suspend_resume only with both calls; show suspended, and running again",
        run=calls.suspend,
    ),
    Check(
        name="other abilities",
        expected="what it announces of remuda.stats and remuda.recover works",
        to_do="mend the call that is named: Stats (no price below 0), or Recover (every instance with an owner's tag);"
        " announce only what there is",
        run=calls.own_abilities,
    ),
    Check(
        name="answers meanwhile",
        expected=f"while Increase or Update goes on, Health is answered within {calls.HELD_UP_SECONDS:.0f} s",
        to_do="let no call hold up the others: in Python put `await asyncio.to_thread(...)` around a library that"
        " blocks; in Go hold no lock while the provider is asked",
        run=calls.meanwhile,
    ),
    Check(
        name="many calls at once",
        expected=f"{calls.AT_ONCE} Updates and as many ConnectInfos at the same time are all answered right",
        to_do="guard what calls share (a lock), and do not change it while it is read; if they were only too slow, let"
        " none wait for the others",
        run=calls.at_once,
    ),
    Check(
        name="leaves Ctrl-C to its host",
        expected="SIGINT does not end it",
        to_do="ignore SIGINT: it reaches all programs of a terminal, and the host decides",
        run=calls.interrupt,
    ),
    Check(
        name="can be logged in to",
        expected="SSH with what ConnectInfo says runs a command on the instance",
        to_do="try the same with ssh by hand; give connector_config in --config if user and key are the operator's",
        run=calls.log_in,
    ),
    Check(
        name="remembers its instances",
        expected="killed and started again, Update shows the same instances",
        to_do="ask the provider (by a tag, or a group) instead of remembering: a plugin is started again at any time",
        run=calls.kill,
        is_needed=True,
    ),
    Check(
        name="deletes instances",
        expected="Decrease accepts the instances that it is asked about, and no others",
        to_do="return the names that the provider accepted; an error where it accepts none",
        run=calls.decrease,
    ),
    Check(
        name="deletes only once",
        expected="Decrease of instances that are going already is no error",
        to_do="take an instance that is gone, or going, for deleted; hosts ask again after a restart",
        run=calls.again,
    ),
    Check(
        name="deletes nothing else",
        expected="Decrease of an unknown instance does no harm",
        to_do="look instances up by their names before deleting anything",
        run=calls.decrease_nobody,
    ),
    Check(
        name="instances go",
        expected="what was accepted becomes deleting, then deleted or missing, and stays so",
        to_do="map the provider's states; show no instance as running after its deletion was accepted",
        run=calls.disappear,
    ),
    Check(
        name="leaves the others alone",
        expected="instances that were there before are still there",
        to_do="delete only what Decrease names",
        run=calls.others,
    ),
    Check(
        name="goes on after Shutdown",
        expected="InstanceGroup.Shutdown cleans up, and the plugin still answers",
        to_do="end only after GRPCController.Shutdown; InstanceGroup.Shutdown is for what was made for all instances",
        run=calls.shutdown,
    ),
    Check(
        name="keeps stdout clean",
        expected="nothing is printed to stdout after the handshake",
        to_do="log to stderr; stdout belongs to the handshake, and some hosts do not read on",
        run=calls.stdout,
    ),
)
NOTHING_LEFT = Check(
    name="nothing is left",
    expected="all instances that were made are deleted",
    to_do="delete them by hand at the provider: they may cost money",
    run=calls.clean_up,
)
