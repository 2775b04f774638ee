"""Problems that users of other autoscalers report, tested with the whole scaler in virtual time. The file of the same
name in `tests/unit/taskscaler/core` tests those that a plan alone decides."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.fleeting import InProcess, InstanceState, PermanentError, TemporaryError
from remuda.lib.clock import settle
from remuda.taskscaler.core.policy import PolicyRule
from remuda.taskscaler.core.values import Limits
from remuda.taskscaler.fleet.setup import AcquireTimeoutError, GroupSetup
from remuda.taskscaler.loop.state import state_path
from remuda.taskscaler.loop.sweep import sweep
from remuda.testing.scalers import OWNER, CloudGroup, InlineWriter, Stable


async def start_five_instances(stable: Stable) -> list[str]:
    stable.policy(idle_count=5, idle_seconds=300.0)
    await stable.start()
    await stable.run(60)
    assert len(stable.instances("ready")) == 5
    return sorted(stable.instances())


async def test_scales_to_zero(stable: Stable) -> None:
    """After the last job and idle_time the group is empty and stays empty."""
    await stable.start()
    await stable.acquire("a", "b", "c")
    stable.release("a", "b", "c")
    await stable.run(400)
    assert stable.cloud.list_instances() == {}
    created = stable.cloud.made
    await stable.run(7200, step=60.0)
    assert (stable.cloud.list_instances(), stable.cloud.made) == ({}, created)
    assert stable.scaler.status().requests == ()


async def test_slow_delete_does_not_block(stable: Stable) -> None:
    """A deletion that takes minutes does not delay the next removal."""
    stable.policy(idle_seconds=30.0)
    await stable.start()
    await stable.acquire("a", "b")
    stable.release("a")
    stable.cloud.hung.add("decrease")
    await stable.run(60)
    assert len(stable.instances("deleting")) == 1
    stable.cloud.hung.clear()
    stable.release("b")
    await stable.run(60)
    assert sum(state is InstanceState.RUNNING for state in stable.cloud.list_instances().values()) == 1
    await stable.run(400)
    assert stable.cloud.list_instances() == {}


async def test_backoff_from_last_failure(stable: Stable) -> None:
    """Failures to get ready slow creation down, counted from the last one; the first success ends the backoff."""
    stable.setup = replace(stable.setup, acquire_seconds=1e9)
    stable.mechanic.broken["*"] = PermanentError("the ready command failed")
    await stable.start()
    job = asyncio.create_task(stable.scaler.acquire("job"))
    await stable.run(3600)
    assert 5 <= stable.cloud.made <= 20
    assert "the ready command failed" in stable.scaler.status().groups[0].error
    stable.mechanic.broken.clear()
    await stable.run(1300)
    assert job.done()
    assert stable.scaler.status().groups[0].failures == 0


async def test_request_withdrawn(stable: Stable) -> None:
    """When demand ends, requests that were not sent are withdrawn."""
    await stable.start()
    await stable.run(5)
    stable.cloud.hung.add("increase")
    jobs = []
    for number in range(12):  # each makes a request of its own
        jobs.append(asyncio.create_task(stable.scaler.acquire(f"{number}")))
        await stable.run(1)
    assert sum(not request.is_sent for request in stable.scaler.status().requests) > 0
    for job in jobs:
        job.cancel()
    await stable.run(5)
    assert all(request.is_sent for request in stable.scaler.status().requests)
    stable.cloud.hung.clear()
    await stable.run(1200)
    assert (stable.cloud.list_instances(), stable.scaler.status().requests) == ({}, ())


async def test_undelivered_instance_expires(tmp_path: Path) -> None:
    """An accepted request whose instance never appears frees its place and is reported."""
    stable = Stable(tmp_path, max_instances=1)
    stable.cloud.shows = False
    await stable.start()
    job = asyncio.create_task(stable.scaler.acquire("job"))
    await stable.run(300)
    assert [request.count for request in stable.scaler.status().requests] == [1]
    await stable.run(400)
    assert "undelivered" in {decision.reason for decision in stable.scaler.status().decisions}
    assert "never listed" in stable.scaler.status().groups[0].error
    stable.cloud.machines.clear()
    stable.cloud.shows = True
    await stable.run(700)
    assert job.done()
    await stable.close()


async def test_creating_forever_expires(tmp_path: Path) -> None:
    """An instance stuck in creating is deleted after a limit."""
    stable = Stable(tmp_path, boot_seconds=1e9, max_instances=1)
    await stable.start()
    job = asyncio.create_task(stable.scaler.acquire("job"))
    await stable.run(930)
    assert {decision.reason for decision in stable.scaler.status().decisions} >= {"stuck"}
    stable.cloud.boot_seconds = 10.0
    await stable.run(120)
    assert job.done()
    assert stable.cloud.most == 1
    await stable.close()


async def test_policy_reload_acts(stable: Stable) -> None:
    """idle_count 0 in a reloaded file empties the pool without a restart."""
    await start_five_instances(stable)
    stable.policy(idle_count=0, idle_seconds=60.0)
    await stable.run(90)
    assert stable.cloud.list_instances() == {}


async def test_policy_before_first_reserve(stable: Stable) -> None:
    """No job may be asked for before the configured policy has been applied."""
    stable.cloud.hung.add("update")
    await stable.start()
    assert stable.scaler.capacity() == 0
    await stable.run(30)
    assert stable.scaler.capacity() == 0


async def test_long_polls_do_not_pin(stable: Stable) -> None:
    """Open long polls do not keep instances beyond idle_time."""
    await start_five_instances(stable)
    stable.scaler.set_open_requests(5)
    stable.policy(idle_count=1, idle_seconds=60.0)
    await stable.run(300)
    assert len(stable.cloud.list_instances()) == 1


async def test_never_removed_mid_job(tmp_path: Path) -> None:
    """No scale-down, restart or policy change removes an instance with a job; Stable checks every deletion."""
    stable = Stable(tmp_path, capacity_per_instance=2)
    await stable.start()
    await stable.acquire("a", "b", "c")
    stable.setup = replace(stable.setup, max_instances=1)
    stable.policy(idle_seconds=0.0)
    await stable.run(120)
    await stable.kill()
    await stable.start(is_recovered=False)
    await stable.run(600)
    holders = {holder for entry in stable.instances().values() for holder in entry.holders}
    assert holders == {"a", "b", "c"}
    for holder in ("a", "b", "c"):
        (instance,) = (entry.name for entry in stable.instances().values() if holder in entry.holders)
        assert stable.scaler.adopt(holder, instance)
    stable.scaler.end_recovery()
    await stable.run(600)
    assert {holder for entry in stable.instances().values() for holder in entry.holders} == holders
    stable.release("a", "b", "c")
    await stable.run(120)
    assert stable.cloud.list_instances() == {}
    assert stable.lost == []
    await stable.close()


async def test_accepted_means_capacity(tmp_path: Path) -> None:
    """An accepted job does not fail by the acquire timeout while an instance is being created for it, and the capacity
    is never more than there can be."""
    stable = Stable(tmp_path, boot_seconds=1200.0, max_instances=1, creation_seconds=3600.0)
    stable.setup = replace(stable.setup, acquire_seconds=300.0)
    await stable.start()
    await stable.run(5)
    assert stable.scaler.capacity() == 1
    first = asyncio.create_task(stable.scaler.acquire("first"))
    await settle(100)
    assert stable.scaler.capacity() == 1
    await stable.run(1100)
    assert not first.done()
    await stable.run(120)
    assert (await first).instance == "i-1"
    assert stable.scaler.capacity() == 1
    second = asyncio.create_task(stable.scaler.acquire("second"))
    await stable.run(310)
    with pytest.raises(AcquireTimeoutError, match="max_instances is 1"):
        await second
    await stable.close()


async def test_vanished_noticed_fast(stable: Stable) -> None:
    """A machine that vanished gets no job after one heartbeat, and the loss is reported with its jobs."""
    names = await start_five_instances(stable)
    assigned = await stable.acquire("job")
    gone = [assigned["job"].instance, *[name for name in names if name != assigned["job"].instance][:3]]
    for name in gone:
        stable.cloud.lose(name)
    await stable.run(60, step=1.0)
    assert stable.lost == [(gone[0], ["job"])]
    slots = await stable.acquire("a", "b")
    assert not {slot.instance for slot in slots.values()} & set(gone)
    assert not stable.instances().keys() & set(gone)


async def test_one_incomplete_update_loses_nothing(stable: Stable) -> None:
    """Instances that a provider does not list once keep their jobs, but get no new ones."""
    names = await start_five_instances(stable)
    await stable.acquire("job")
    idle_since = {name: instance.idle_since for name, instance in stable.instances().items()}
    stable.cloud.shows = False
    stable.scaler.change(stable.setup)  # causes an update at once
    await settle(200)
    await stable.run(1)
    assert len(stable.instances("suspect")) >= 5
    stable.cloud.shows = True
    await stable.run(10)
    assert {name: instance.idle_since for name, instance in stable.instances().items()} == idle_since
    assert stable.lost == []
    assert set(names) <= stable.instances("ready").keys()


async def test_dead_first_not_blocking(stable: Stable) -> None:
    """One dead instance does not delay acquires on others."""
    names = await start_five_instances(stable)
    stable.mechanic.ill.add(names[0])
    stable.cloud.hung.add("heartbeat")
    await stable.run(90)
    before = stable.clock.now()
    slots = await stable.acquire("a", "b")
    assert len(slots) == 2
    assert stable.clock.now() == before


async def test_wake_not_poll(tmp_path: Path) -> None:
    """A waiting acquire gets a freed slot at once."""
    stable = Stable(tmp_path, max_instances=1)
    await stable.start()
    await stable.acquire("first")
    second = asyncio.create_task(stable.scaler.acquire("second"))
    await settle(100)
    assert not second.done()
    stable.release("first")
    await settle(100)
    assert second.done()
    await stable.close()


async def test_unhealthy_gets_no_job(tmp_path: Path) -> None:
    """After the failure threshold no slot is given and the instance is replaced."""
    stable = Stable(tmp_path, capacity_per_instance=2)
    await stable.start()
    sick = (await stable.acquire("job"))["job"].instance
    for _ in range(3):
        stable.scaler.report(sick, is_well=False)
        await stable.run(15)
    slots = await stable.acquire("next")
    assert slots["next"].instance != sick
    assert stable.instances()[sick].state == "draining"
    stable.release("job")
    await stable.run(60)
    assert sick not in stable.instances()
    assert "unhealthy" in {decision.reason for decision in stable.scaler.status().decisions}
    await stable.close()


async def test_an_instance_that_does_not_answer_is_replaced(stable: Stable) -> None:
    names = await start_five_instances(stable)
    stable.mechanic.ill.add(names[0])
    await stable.run(70)
    assert names[0] not in stable.instances("ready")
    await stable.run(60)
    assert names[0] not in stable.cloud.list_instances()
    assert len(stable.instances("ready")) == 5


async def test_try_does_not_burn_use(tmp_path: Path) -> None:
    """Reserving and giving back, or a job that did not start, does not count for max_use_count."""
    stable = Stable(tmp_path, max_use_count=1)
    await stable.start()
    slot = (await stable.acquire("try"))["try"]
    stable.release("try", is_used=False)
    assert stable.instances()[slot.instance].uses == 0
    assert (await stable.acquire("job"))["job"].instance == slot.instance
    stable.release("job")
    await stable.run(60)
    assert slot.instance not in stable.instances()
    await stable.close()


def ready_instances(stable: Stable) -> dict[str, tuple[int, tuple[str, ...], float]]:
    return {
        name: (instance.uses, instance.holders, instance.created_at)
        for name, instance in stable.instances("ready").items()
    }


async def test_restart_keeps_all(tmp_path: Path) -> None:
    """A restart keeps idle and busy instances and use counts, after a kill as well as after an orderly end."""
    stable = Stable(tmp_path)
    await start_five_instances(stable)
    await stable.acquire("old")
    stable.release("old", warmed=["key"])
    slot = (await stable.acquire("job"))["job"]
    await stable.run(30)
    before = ready_instances(stable)
    await stable.close()
    for _ in range(2):
        stable.clock.jump(3000.0)
        await stable.start(is_recovered=False)
        assert stable.scaler.adopt("job", slot.instance)
        stable.scaler.end_recovery()
        await stable.run(10)
        assert ready_instances(stable) == before
        assert (await stable.acquire("job"))["job"] == slot
        await stable.kill()
    assert stable.cloud.made == 6
    assert len(stable.mechanic.prepared) == 6


async def test_token_rotation_one_scaler(tmp_path: Path) -> None:
    """The state belongs to the name of the runner, so a change of other settings finds the same instances."""
    stable = Stable(tmp_path)
    names = await start_five_instances(stable)
    await stable.close()
    stable.setup = replace(stable.setup, groups=(GroupSetup(name="", config={"anything": "a new token"}),))
    await stable.start()
    await stable.run(30)
    assert sorted(stable.instances("ready")) == names
    assert len(list(tmp_path.glob("*.db"))) == 1
    await stable.close()


async def test_corrupt_state_is_one_instance(tmp_path: Path) -> None:
    """One broken row affects only that instance; a changed capacity applies to restored ones."""
    stable = Stable(tmp_path)
    names = await start_five_instances(stable)
    slots = await stable.acquire("job", "other")
    await stable.close()
    db = sqlite3.connect(state_path(tmp_path, stable.setup.name))
    db.execute("update instances set body = x'7b22' where name = ?", (slots["other"].instance,))
    db.commit()
    db.close()
    stable.setup = replace(stable.setup, groups=(GroupSetup(name="", limits=Limits(capacity_per_instance=3)),))
    await stable.start(is_recovered=False)
    assert stable.scaler.adopt("job", slots["job"].instance)
    assert stable.scaler.adopt("other", slots["other"].instance)
    stable.scaler.end_recovery()
    await stable.run(30)
    assert set(names) <= stable.instances("ready").keys()
    assert {instance.capacity for instance in stable.instances().values()} == {3}
    assert stable.instances()[slots["job"].instance].uses == 1
    await stable.close()


async def test_a_state_file_that_is_not_a_database_is_put_aside(tmp_path: Path) -> None:
    stable = Stable(tmp_path)
    names = await start_five_instances(stable)
    await stable.close()
    path = state_path(tmp_path, stable.setup.name)
    for file in tmp_path.iterdir():
        file.write_bytes(b"nonsense" * 1000)
    await stable.start()
    await stable.run(30)
    assert sorted(stable.instances("ready")) == names
    assert {instance.cause for instance in stable.instances().values()} == {"preexisted"}
    assert path.with_name(path.name + ".broken").exists()
    await stable.close()


async def test_shutdown_order(tmp_path: Path) -> None:
    """Instances are deleted before the plugin stops; only those with a job are left."""
    stable = Stable(tmp_path)
    stable.setup = replace(stable.setup, delete_on_shutdown=True)
    await start_five_instances(stable)
    stable.cloud.make(1, OWNER)  # being created when the manager ends
    await stable.close()
    await stable.run(20)
    assert stable.cloud.list_instances() == {}
    assert stable.cloud.calls[-1] == "shutdown"
    assert stable.cloud.calls.index("shutdown") > stable.cloud.calls.index("decrease")
    await stable.start()
    await stable.run(60)
    busy = (await stable.acquire("job"))["job"].instance
    await stable.close()
    await stable.run(20)
    assert stable.cloud.list_instances().keys() == {busy}


async def test_out_of_sync_heals(tmp_path: Path) -> None:
    """A group that was resized by hand: counts agree again within one update."""
    stable = Stable(tmp_path, max_instances=6)
    await start_five_instances(stable)
    stable.cloud.make(3)
    await stable.run(120)
    assert len(stable.instances("ready")) == len(stable.cloud.list_instances()) == 6
    await stable.run(300)
    assert len(stable.instances("ready")) == len(stable.cloud.list_instances()) == 5
    for name in list(stable.cloud.list_instances())[:2]:
        stable.cloud.lose(name)
    await stable.run(180)
    assert len(stable.instances("ready")) == len(stable.cloud.list_instances()) == 5
    await stable.close()


async def test_manager_dead_vms_reaped(stable: Stable, tmp_path: Path) -> None:
    """The machines of a manager or runner that is gone for good are found by tag, listed first, and removed on
    request."""
    mine = await start_five_instances(stable)
    old = stable.cloud.make(2, "s_test/9")  # of a runner of this manager that is no longer configured
    other = stable.cloud.make(1, "s_other/9")  # another manager's
    young = {name: stable.cloud.machines[name] for name in stable.cloud.make(1, "s_test/9")}
    for name in (*old, *other):
        stable.cloud.machines[name].created_at -= 3600.0
    plugins = {"": InProcess(CloudGroup(stable.cloud))}
    await plugins[""].init({}, stable.setup.groups[0].settings)
    result = await sweep(stable.setup, plugins, lambda: {OWNER}, folder=tmp_path, clock=stable.clock, remove=False)
    assert [machine.instance for machine in result.found] == old
    assert (result.removed, stable.cloud.calls.count("decrease")) == ((), 0)
    result = await sweep(stable.setup, plugins, lambda: {OWNER}, folder=tmp_path, clock=stable.clock, remove=True)
    assert result.removed == tuple(old)
    await stable.run(20)
    assert set(stable.cloud.list_instances()) >= {*mine, *other, *young}
    assert not set(stable.cloud.list_instances()) & set(old)


async def test_leaked_machines_swept(stable: Stable, tmp_path: Path) -> None:
    """A machine with our tag that is neither listed by the group nor known here is swept after a time."""
    names = await start_five_instances(stable)
    (leaked,) = stable.cloud.make(1, OWNER)
    stable.cloud.machines[leaked].state = InstanceState.DELETED  # half created: the group does not list it as its own
    plugins = {"": InProcess(CloudGroup(stable.cloud))}
    await plugins[""].init({}, stable.setup.groups[0].settings)

    async def find_leaked() -> list[str]:
        result = await sweep(stable.setup, plugins, lambda: {OWNER}, folder=tmp_path, clock=stable.clock, remove=False)
        return [machine.instance for machine in result.found]

    assert await find_leaked() == []
    await stable.run(700, step=60.0)
    assert await find_leaked() == [leaked]
    assert set(names) <= stable.instances("ready").keys()


async def test_partial_success_kept(stable: Stable) -> None:
    """Partly successful calls of Increase and Decrease are counted correctly, also if an error follows the creation."""
    stable.cloud.accepts = 2
    await start_five_instances(stable)
    assert stable.cloud.made == 5
    stable.policy(idle_count=0, idle_seconds=0.0)
    await stable.run(400)
    assert stable.cloud.list_instances() == {}
    stable.cloud.accepts = 1000
    stable.cloud.broken["increase, late"] = TemporaryError("the answer was lost")
    stable.policy(idle_count=3, idle_seconds=600.0)
    await stable.run(5)
    stable.cloud.broken.clear()
    await stable.run(60)
    assert (len(stable.instances("ready")), stable.cloud.made) == (3, 8)
    assert {instance.cause for instance in stable.instances().values()} == {"requested"}


async def test_over_report_survived(tmp_path: Path) -> None:
    """A group with more instances than requested is reduced to the limit, and no job is lost."""
    stable = Stable(tmp_path, max_instances=10)
    await stable.start()
    await stable.acquire("job")
    stable.cloud.make(20)
    await stable.run(240)
    assert len(stable.cloud.list_instances()) <= 10
    assert stable.lost == []
    await stable.close()


async def test_unknown_state_creates_nothing(stable: Stable) -> None:
    """An unknown state causes no creation and no removal."""
    await start_five_instances(stable)
    for machine in stable.cloud.machines.values():
        machine.state = InstanceState.UNKNOWN
    await stable.run(3600, step=60.0)
    assert (len(stable.cloud.machines), stable.cloud.made) == (5, 5)
    assert len(stable.instances("unknown")) == 5


async def test_failed_update_keeps_scaling(stable: Stable) -> None:
    """While Update fails, removal and hand-out go on, but nothing is created."""
    await start_five_instances(stable)
    stable.cloud.broken["update"] = TemporaryError("try again later")
    await stable.run(70)
    slots = await stable.acquire("a", "b")
    assert len(slots) == 2
    assert stable.scaler.capacity() == 5
    stable.policy(idle_count=0, idle_seconds=10.0)
    await stable.run(30)
    assert (stable.cloud.made, len(stable.cloud.list_instances())) == (5, 2)
    assert stable.scaler.status().groups[0].error == "try again later"
    stable.cloud.broken.clear()
    await stable.run(120)
    assert len(stable.instances()) == 2


async def test_hung_call_has_deadline(tmp_path: Path) -> None:
    """A plugin call that never returns is given up, and does not stall other groups."""
    stable = Stable(tmp_path, "first", "second")
    stable.clouds["first"].hung |= {"init", "update", "increase"}
    await stable.start()
    slots = await stable.acquire("a", "b")
    assert {slot.instance for slot in slots.values()} == {"second/i-1", "second/i-2"}
    await stable.run(200)
    assert "not answered" in stable.scaler.status().groups[0].error
    stable.clouds["first"].hung.clear()
    await stable.run(200)
    assert (await stable.acquire("c"))["c"].instance == "first/i-1"
    await stable.close()


async def test_max_size_too_small_named(tmp_path: Path) -> None:
    """If the group's maximum is below max_instances, it is used, and both numbers are reported."""
    stable = Stable(tmp_path, max_instances=50)
    stable.cloud.max_size = 3
    stable.policy(idle_count=10, idle_seconds=300.0)
    await stable.start()
    await stable.run(60)
    assert len(stable.cloud.list_instances()) == 3
    note = stable.scaler.status().groups[0].note
    assert "50" in note
    assert "3" in note
    await stable.close()


async def test_cancel_is_cancel(tmp_path: Path) -> None:
    """A cancelled wait, a wait that was too long and the loss of an instance are told apart."""
    stable = Stable(tmp_path, max_instances=1)
    stable.setup = replace(stable.setup, acquire_seconds=60.0)
    await stable.start()
    await stable.acquire("job")
    cancelled = asyncio.create_task(stable.scaler.acquire("cancelled"))
    late = asyncio.create_task(stable.scaler.acquire("late"))
    await stable.run(10)
    cancelled.cancel()
    await stable.run(60)
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    with pytest.raises(AcquireTimeoutError):
        await late
    stable.cloud.lose("i-1")
    await stable.run(70)
    assert stable.lost == [("i-1", ["job"])]
    await stable.close()


async def test_foreign_instances_are_left_alone(tmp_path: Path) -> None:
    """Instances with the tag of another owner are counted, but neither logged in to nor deleted."""
    stable = Stable(tmp_path, max_instances=3)
    stable.cloud.make(2, "s_other/1")
    await stable.start()
    await stable.acquire("job")
    stable.release("job")
    await stable.run(900)
    assert stable.cloud.list_instances().keys() == {"i-1", "i-2"}
    assert stable.mechanic.prepared == ["i-3"]
    await stable.close()


async def test_slots_are_held_back_while_the_disk_is_full(stable: Stable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot is handed out only after its holder is stored."""
    await start_five_instances(stable)
    monkeypatch.setattr(InlineWriter, "broken", "disk full")
    job = asyncio.create_task(stable.scaler.acquire("job"))
    await stable.run(10)
    assert not job.done()
    assert stable.scaler.status().store_error == "disk full"
    monkeypatch.setattr(InlineWriter, "broken", "")
    await stable.run(40)
    assert job.done()


async def test_preparing_is_bounded_and_tried_again(stable: Stable) -> None:
    """A refused port is not a failure and is tried again. Only some new instances are prepared at the same time."""
    stable.setup = replace(stable.setup, preparing=2, rules=(PolicyRule(idle_count=8),))
    stable.mechanic.broken["i-1"] = TemporaryError("connection refused")
    await stable.start()
    await stable.run(100)
    assert stable.mechanic.most_at_once == 2
    assert len(stable.instances("ready")) == 7
    assert stable.instances("creating")["i-1"].error == "connection refused"
    stable.mechanic.broken.clear()
    await stable.run(40)
    assert len(stable.instances("ready")) == 8
