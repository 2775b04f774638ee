"""`remuda scale explain` and `remuda scale sweep`: query a running manager about the machines that it has created."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.manager.status import Config, Data, find_manager_folder
from remuda.cli.options import Output
from remuda.cli.render.listing import local_time, print_json, print_table
from remuda.lib import event_loop
from remuda.lib.durations import format_duration
from remuda.lib.exits import Exit

if TYPE_CHECKING:
    from remuda.manager.process.scale_commands import FleetReport
    from remuda.taskscaler.fleet.status import InstanceStatus

SHOWN_DECISIONS = 15
"""How many of the latest decisions are shown as text; JSON has all of them."""
Runner = Annotated[str, Parameter(help="Name or short token of a runner [default: all].", show_default=False)]


def explain(
    runner: Runner = "",
    /,
    *,
    config: Config = None,
    data: Data = None,
    output: Output = "text",
) -> None:
    """Explain the number of machines of a manager: how many are wanted, how many exist, and what the manager does.

    Try:

        remuda scale explain
        remuda scale explain builder --config config.toml
        remuda scale explain --output json
    """
    from remuda.manager.process.control import Command, ask
    from remuda.manager.process.scale_commands import ScaleReport

    report = event_loop.run(
        ask(find_manager_folder(config, data), Command(command="scale", runner=runner), ScaleReport)
    )
    if output == "json":
        print_json(report)
        return
    for number, fleet in enumerate(report.fleets):
        if number:
            print()
        _show(fleet)


def sweep(
    runner: Runner = "",
    /,
    *,
    remove: Annotated[bool, Parameter(help="Remove the machines, do not only list them.", negative="")] = False,
    config: Config = None,
    data: Data = None,
    output: Output = "text",
) -> int:
    """List machines of this manager that belong to no configured runner, or that the manager does not know.

    Machines are found by the tags that they got when they were created. For runners that were removed from the
    configuration while no manager ran, the manager asks the plugin with stored settings.

    Exit code 1 if the plugin of a machine group did not answer, or refused to remove a machine.

    Try:

        remuda scale sweep
        remuda scale sweep --remove
    """
    from remuda.manager.process.control import Command, ask
    from remuda.manager.process.scale_commands import SWEEP_SECONDS, SweepReport

    command = Command(command="sweep", runner=runner, remove=remove)
    report = event_loop.run(ask(find_manager_folder(config, data), command, SweepReport, seconds=SWEEP_SECONDS))
    if output == "json":
        print_json(report)
    else:
        rows = [
            (each.instance, each.owner, local_time(each.created_at), each.cause, "removed" if each.is_removed else "")
            for each in report.orphans
        ]
        if rows:
            print_table([("machine", "owner", "created", "why", ""), *rows])
        elif not report.problems and not report.passed_over and not report.remarks:
            print("there are no machines without an owner")
        for text in (*report.remarks, *report.problems):
            print(text)
        for group in report.passed_over:
            print(f"{group} was not searched: its plugin cannot find machines by tags; look for them at the provider")
        if rows and not remove:
            print("nothing was removed; to remove them: remuda scale sweep --remove")
    is_incomplete = remove and not all(orphan.is_removed for orphan in report.orphans)
    return Exit.FAILURE if report.problems or is_incomplete else Exit.SUCCESS


def _show(fleet: "FleetReport") -> None:
    status = fleet.status
    name = (fleet.name or fleet.runner) + (" (ending)" if fleet.is_ending else "")
    states = Counter(instance.state for instance in status.instances)
    machines = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no machines"
    print(f"{name}: {machines}; {status.held} jobs there, {status.waiting} wait for a slot")
    if fleet.is_ending:
        print("Its runner is not configured any more: its machines are removed when their jobs have ended")
    print(status.explanation.strip() or "There is no plan yet: the plugin has not listed its machines")
    for group in status.groups:
        learned = f"learned from {group.boots}" if group.boots else "an estimate, because none has started yet"
        seconds = format_duration(round(group.boot_seconds))
        since = group.starting_seconds
        plugin = group.plugin or ("not started" if since is None else f"is starting, {format_duration(round(since))}")
        print(f"Group {group.name} ({plugin}): ready after {seconds}, {learned}")
        for text in (group.error, group.note):
            if text:
                print(f"  {text}")
    for text in (status.store_error, status.demand_error):
        if text:
            print(text)
    if status.instances:
        print()
        heading = ("machine", "state", "since", "jobs", "uses", "address", "problem")
        print_table([heading, *(_row(each) for each in sorted(status.instances, key=lambda instance: instance.name))])
    if status.decisions:
        print("\nLatest decisions:")
        for decision in status.decisions[-SHOWN_DECISIONS:]:
            what = decision.instance or f"{decision.count} in {decision.group}"
            print(f"  {local_time(decision.at)}  {decision.action} {what}: {decision.text}")


def _row(instance: "InstanceStatus") -> tuple[str, ...]:
    return (
        instance.name,
        instance.state,
        local_time(instance.since),
        "" if instance.state == "foreign" else f"{instance.slots_used}/{instance.capacity}",
        str(instance.uses),
        instance.address,
        instance.error,
    )
