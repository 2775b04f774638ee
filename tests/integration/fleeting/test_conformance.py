"""The conformance checks of `remuda plugin check`: the plugin that `plugin new` writes passes them, and each fault of a
broken plugin is reported."""

import asyncio
import re
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from remuda.fleeting import conformance
from remuda.fleeting.conformance import Outcome, Result, Trial
from remuda.fleeting.templates import files
from remuda.testing.instance_groups import PlainGroup, TableGroup, a_plugin, a_program
from remuda.testing.lab import processes
from remuda.testing.waiting import until

pytestmark = pytest.mark.long

BEGIN = "import sys\n"
EXISTING_INSTANCE = "an-old-one"


def write_plugin(folder: Path, *, first: str = "", **replacing: dict[str, str]) -> Path:
    """Write the plugin of `plugin new`, and return its program. `first`: code that it runs before anything else.
    `replacing`: texts to replace, by module."""
    for file in files("herd", "python", python=sys.executable):
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = file.text
        for old, new in replacing.get(path.stem, {}).items():
            assert old in text
            text = text.replace(old, new)
        path.write_text(text.replace(BEGIN, f"{first}\n{BEGIN}", 1) if file.is_program else text)
        path.chmod(0o755)
    return folder / "fleeting-plugin-herd"


END_SECONDS = 30.0
"""Seconds for the end of a process in tests of something else; long, because the machine may be busy."""
SHORT_TIMEOUTS = {"boot_seconds": 3.0, "call_seconds": 10.0, "least_seconds": 3.0}
"""Short timeouts for faults that are found by a timeout."""


async def run_checks(trial: Trial) -> dict[str, Result]:
    return {result.name: result async for result in conformance.try_out(trial)}


async def check_plugin(program: Path, folder: Path, **options: Any) -> dict[str, Result]:
    trial = Trial(
        program=str(program),
        config={"folder": str(folder / "machines")},
        **{"end_seconds": END_SECONDS} | options,
    )
    results = await run_checks(trial)
    await until(lambda: not [words for _, words in processes() if str(program) in words])
    return results


def messages(results: dict[str, Result], outcome: Outcome = Outcome.FAILED) -> dict[str, str]:
    return {name: result.happened for name, result in results.items() if result.outcome is outcome}


async def test_the_plugin_of_plugin_new_passes(tmp_path: Path) -> None:
    results = await check_plugin(write_plugin(tmp_path), tmp_path, instances=2)
    assert messages(results) == messages(results, Outcome.NOTED) == {}
    assert len(results) > 25
    assert list((tmp_path / "machines").iterdir()) == []


@pytest.mark.parametrize("kind", [TableGroup, PlainGroup])
async def test_missing_state_and_optional_abilities_are_no_failure(tmp_path: Path, kind: type[PlainGroup]) -> None:
    trial = Trial(program=str(a_plugin(tmp_path, kind)), boot_seconds=5.0, end_seconds=END_SECONDS)
    results = await run_checks(trial)
    assert messages(results) == {}
    assert "is not known any more" in messages(results, Outcome.NOTED)["remembers its instances"]


PATCH = (
    "import os, sys, asyncio, signal\nfrom remuda.wire.proto import fleeting_pb2 as pb\nfrom remuda.fleeting import "
)
FATAL_FAULTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "prints before its handshake": (
        "handshake",
        "this is no handshake: 'Welcome!'",
        {"first": "print('Welcome!', flush=True)"},
    ),
    "never says a word": ("handshake", "ended with 7 before its handshake", {"first": "import os; os._exit(7)"}),
    "refuses its configuration": (
        "answers Init",
        "there is no setting folder; did you mean fodler?",
        {"plugin": {"    folder: str": "    fodler: str", "config.folder": "config.fodler"}},
    ),
    "has no room": ("answers Init", "max_size 0", {"plugin": {"max_size=config.max_size)": "max_size=0)"}}),
    "hangs": (
        "lists its instances",
        "has not answered Update in time",
        {"plugin": {"return {machine.name:": "await __import__('asyncio').sleep(60)\n        return {machine.name:"}},
    ),
    "accepts more than asked for": (
        "makes instances",
        "asked for 1 it accepted 51",
        {"first": f"{PATCH}in_process\nin_process.min = lambda a, b: b + 50"},
    ),
    "accepts nothing": ("makes instances", "none", {"plugin": {"        return count\n": "        return 0\n"}}),
    "makes nothing": (
        "shows what it makes",
        "1 were accepted, Update shows of them: nothing",
        {"provider": {"        (self.folder / name).mkdir()\n": "        return\n"}},
    ),
    "makes too many": (
        "shows what it makes",
        "1 were accepted, and 2 appeared",
        {"provider": {"        (self.folder / name).mkdir()\n": "        (self.folder / name).mkdir()\n"
                      "        (self.folder / (name + 'x')).mkdir()\n"
                      "        (self.folder / (name + 'x') / 'owner').touch()\n"}},
    ),
    "invents states": (
        "shows what it makes",
        "is in state 9, which hosts do not know",
        {"first": f"{PATCH}services\nservices.state_to_wire = lambda state, is_ours: 9"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "message", "changes"), FATAL_FAULTS.values(), ids=FATAL_FAULTS)
async def test_a_stopping_fault_is_explained(tmp_path: Path, name: str, message: str, changes: dict[str, Any]) -> None:
    results = await check_plugin(write_plugin(tmp_path, **changes), tmp_path, **SHORT_TIMEOUTS)
    assert message in messages(results)[name]
    assert results[name].expected
    assert results[name].to_do
    machines = tmp_path / "machines"
    assert not machines.exists() or list(machines.iterdir()) == []


MANY = (
    {  # faults of the program, and of calls that fail without ending the process
        "prints its version": "without lines Name: and Version:",
        "refuses to serve without a host": "it was still running",
        "a wrong configuration": "Init accepted a text",
        "instances start": "is deleting although its deletion was not requested",
        "says how to connect": "has no address",
        "an unknown instance": "has the address",
        "heartbeat": "not well at all",
        "suspends and resumes": "accepted []",
        "other abilities": "Recover does not find",
        "many calls at once": "too many at once",
        "deletes instances": "it did not accept",
        "keeps stdout clean": "lines were printed to stdout, the first: ['hello']",
        "ends after Shutdown": "still there",
        "ends with its host": "still listening",
    },
    {
        "first": f"{PATCH}in_process, sdk, serving, services\n"
        "from remuda.fleeting.handshake import COOKIE, COOKIE_VALUE\n"
        "sys.argv[1:] and sys.exit(0)\nos.environ[COOKIE] = COOKIE_VALUE\nout = os.dup(1)\n"
        "read = sdk.read_config\n"
        "in_process.read_config = lambda kind, given: read(kind, None if isinstance(given, str) else given)\n"
        "services.ControllerService.__init__ = lambda self, end: setattr(self, '_end', lambda: None)\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nserving.os.getppid = lambda: 1\nchild = os.fork()\n"
        "if child:\n    os.waitpid(child, 0)\n    os._exit(0)\n"
        "import builtins\nbuiltins.busy = 0\nbuiltins.out = out",
        "plugin": {
            "        return {machine.name: machine.state": "        import asyncio, builtins, os\n"
            "        os.write(builtins.out, b'hello\\n')\n        builtins.busy += 1\n"
            "        try:\n            await asyncio.sleep(0.05)\n        finally:\n            builtins.busy -= 1\n"
            "        if builtins.busy > 5:\n            raise TemporaryError('too many at once')\n"
            "        return {machine.name: machine.state",
            "    async def heartbeat(": "    async def suspend(self, instances): return []\n"
            "    async def resume(self, instances): return []\n    async def heartbeat(",
            "        if machine.state is not InstanceState.RUNNING:": "        if instance:\n"
            "            raise TemporaryError('not well at all')\n        if False:",
            "        return [\n            TaggedInstance(": "        return [] and [\n            TaggedInstance(",
            "        return instances\n": "        return []\n",
            "            if machine.name == name:": "            if True:",
        },
        "provider": {"state=InstanceState.RUNNING": "state=InstanceState.DELETING", '"127.0.0.1"': '""'},
    },
)  # fmt: skip
LATER = (
    {  # faults that are found later
        "says how to connect": "has no connector",
        "leaves Ctrl-C to its host": "ended with -2",
    },
    {
        "first": f"{PATCH}services\n"
        "services.connect_info_to_wire = lambda info: pb.ConnectInfoResponse(InternalAddr='x')",
        "plugin": {"        self.settings = settings\n": "        import signal\n"
                   "        signal.signal(signal.SIGINT, signal.SIG_DFL)\n        self.settings = settings\n"},
    },
)  # fmt: skip
DELETING = (
    {
        "says how to connect": "keepalive is 0",
        "deletes only once": "it is gone already",
        "instances disappear": "not deleted",
        "leaves the others alone": f"{EXISTING_INSTANCE} existed before",
        "goes on after Shutdown": "ended with 5",
        "nothing is left": "not deleted",
    },
    {
        "first": f"{PATCH}services\nreal = services.connect_info_to_wire\n"
        "def zero(info):\n    made = real(info)\n    made.connector.keepalive = 0\n    return made\n"
        "services.connect_info_to_wire = zero",
        "plugin": {
            "    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:\n": "    gone = ()\n"
            "    async def shutdown(self):\n        import os; os._exit(5)\n"
            "    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:\n"
            "        if set(instances) & set(self.gone): raise TemporaryError('it is gone already')\n"
            "        self.gone += tuple(instances)\n"
        },
        "provider": {"shutil.rmtree(self.folder / name,": f"shutil.rmtree(self.folder / '{EXISTING_INSTANCE}',"},
    },
)  # fmt: skip


@pytest.mark.parametrize(("expected", "changes"), [MANY, LATER, DELETING], ids=["many", "later", "deleting"])
async def test_every_fault_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, str], changes: dict[str, Any]
) -> None:
    # A plugin that does not end fails two checks, each after this time.
    seconds = 1.5 if "refuses to serve without a host" in expected else END_SECONDS
    monkeypatch.setattr("remuda.fleeting.conformance.program.SECONDS", seconds)
    monkeypatch.setattr("remuda.fleeting.conformance.ending.ORPHAN_SECONDS", seconds)
    (tmp_path / "machines" / EXISTING_INSTANCE).mkdir(parents=True)
    (tmp_path / "machines" / EXISTING_INSTANCE / "owner").touch()
    end_seconds = 2.0 if "ends after Shutdown" in expected else END_SECONDS
    failed = messages(
        await check_plugin(write_plugin(tmp_path, **changes), tmp_path, **SHORT_TIMEOUTS, end_seconds=end_seconds)
    )
    assert failed.keys() == expected.keys()
    assert {name: text for name, text in failed.items() if expected[name] not in text} == {}


@pytest.mark.parametrize(
    ("call", "replacing"),
    [
        (
            "Increase",
            {"        for made in range(count):": "        time.sleep(1.5)\n        for made in range(count):"},
        ),
        ("Update", {"        return {machine.name:": "        time.sleep(0.8)\n        return {machine.name:"}),
    ],
)
async def test_a_call_that_blocks_other_calls_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, replacing: dict[str, str]
) -> None:
    monkeypatch.setattr("remuda.fleeting.conformance.calls.HELD_UP_SECONDS", 0.5)
    monkeypatch.setattr("remuda.fleeting.conformance.calls.AT_ONCE", 1)
    program = write_plugin(tmp_path, plugin={"import logging": "import logging\nimport time", **replacing})
    results = await check_plugin(program, tmp_path)
    message = messages(results, Outcome.NOTED)["answers meanwhile"]
    assert f"it answered no other call during {call} for" in message
    assert "asyncio.to_thread" in results["answers meanwhile"].to_do


async def test_instances_of_a_timed_out_increase_are_deleted(tmp_path: Path) -> None:
    late = (
        "        import asyncio, threading\n"
        "        later = lambda: asyncio.run(self.provider.make('late', ''))\n"
        "        threading.Timer(1.5, later).start()\n        await asyncio.sleep(60)\n"
        "        for made in range(count):"
    )
    program = write_plugin(tmp_path, plugin={"        for made in range(count):": late})
    results = await check_plugin(program, tmp_path, call_seconds=1.0, least_seconds=20.0)
    assert messages(results) == {"makes instances": "the plugin has not answered Increase in time"}
    assert list((tmp_path / "machines").iterdir()) == []


async def test_a_plugin_that_does_not_start_again_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.fleeting.conformance.ending.START_SECONDS", 5.0)
    marker = tmp_path / "long"
    first = f"import os\nif os.path.exists({str(marker)!r}): os.write(1, b'x' * 200_000)"
    program = write_plugin(tmp_path, first=first)
    trial = Trial(program=str(program), config={"folder": str(tmp_path / "machines")}, boot_seconds=1.0)
    async for result in conformance.try_out(trial):
        if result.name == "ends after Shutdown":
            marker.touch()
    assert (result.name, result.happened) == ("ends with its host", "started again it printed no handshake")


def write_variant(folder: Path, body: str, *, first: str = "") -> Path:
    """Write a plugin with a subclass of TableGroup. `body`: the methods of the subclass."""
    text = (
        f"#!{sys.executable}\n{first}\nimport sys\nfrom dataclasses import replace\nfrom remuda.fleeting import serve\n"
    )
    text += f"from remuda.testing.instance_groups import TableGroup\n\nclass Variant(TableGroup):\n{body}\n"
    return a_program(folder, f"{text}\nsys.exit(serve(Variant()))\n")


SINGLE_FAULTS: dict[str, tuple[str, str, str]] = {
    "init": (
        "answers Init",
        "KeyError: 'region' (fleeting-plugin-odd:",
        "    async def init(self, *_): return {}['region']",
    ),
    "increase": (
        "makes instances",
        "KeyError: 'region' (fleeting-plugin-odd:",
        "    async def increase(self, count): return {}['region']",
    ),
    "connect_info": (
        "says how to connect",
        "connect_info() returned a dict; it has to return a ConnectInfo",
        "    async def connect_info(self, instance): return await super().connect_info(instance) and {}",
    ),
    "stats": ("other abilities", "stats() returned a dict", "    async def stats(self): return {}"),
    "update": (
        "lists its instances",
        "update() returned 'running' as the state of a",
        "    async def update(self): return {'a': 'running'}",
    ),
}


@pytest.mark.parametrize(("name", "message", "body"), SINGLE_FAULTS.values(), ids=SINGLE_FAULTS)
async def test_fault_is_reported_once_with_the_logged_lines(tmp_path: Path, name: str, message: str, body: str) -> None:
    noisy = f"    print('thinking', file=sys.stderr)\n{body}"
    results = await run_checks(Trial(program=str(write_variant(tmp_path, noisy)), end_seconds=END_SECONDS))
    assert messages(results).keys() == {name}, messages(results)
    assert message in results[name].happened
    if "KeyError" in message:
        assert any("Traceback" in text and "region" in text for text in results[name].logged)


async def test_a_wait_says_for_what_since_when_and_how_long_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.fleeting.conformance.life.QUIET_SECONDS", 0.0)
    lines: list[str] = []
    body = (
        "    async def update(self):\n        print('quota is checked', file=sys.stderr)\n"
        "        return {name: 'creating' for name in await super().update()}"
    )
    body = body.replace("'creating'", "__import__('remuda.fleeting').fleeting.InstanceState.CREATING")
    trial = Trial(program=str(write_variant(tmp_path, body)), boot_seconds=3.0, least_seconds=3.0, say=lines.append)
    results = await run_checks(trial)
    assert "creating, after 3 s" in messages(results)["instances start"]
    [line] = [line for line in lines if "to run" in line]
    assert re.match(
        r"waiting for 1 instance to run: \d s so far, at most \d s more; Update shows \S+ creating; the plugin logged: "
        "quota is checked",
        line,
    ), line


async def test_an_increase_that_the_provider_refuses_is_not_waited_for(tmp_path: Path) -> None:
    lines: list[str] = []
    first = (
        f"{PATCH}services\nfrom grpclib import GRPCError, Status\n"
        "async def refuse(*_): raise GRPCError(Status.UNAVAILABLE, 'the zone has no capacity')\n"
        "services.GroupService.Increase = refuse"
    )
    trial = Trial(program=str(write_variant(tmp_path, "    pass", first=first)), say=lines.append)
    results = await run_checks(trial)
    assert messages(results) == {"makes instances": "the zone has no capacity"}
    assert lines == []


async def test_instances_above_the_quota_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.fleeting.conformance.calls.ASK_SECONDS", 0.1)
    body = (
        "    async def increase(self, count): return count\n"
        "    async def stats(self):\n        from remuda.fleeting import GroupStats\n        return GroupStats(quota=0)"
    )
    results = await run_checks(Trial(program=str(write_variant(tmp_path, body)), least_seconds=100.0))
    assert "Stats says a quota of 0, and 1 would exist" in messages(results)["shows what it makes"]


async def test_failed_deletion_is_reported_without_waiting(tmp_path: Path) -> None:
    program = write_variant(tmp_path, "    async def decrease(self, instances): raise OSError('no right to')")
    results = await run_checks(Trial(program=str(program), least_seconds=100.0))
    assert {"deletes instances", "instances disappear", "nothing is left"} <= messages(results).keys()


async def test_the_reason_of_an_early_end_is_reported(tmp_path: Path) -> None:
    program = write_variant(tmp_path, "    pass", first="import sys\nsys.argv[1:] or __import__('there_is_none')")
    results = await run_checks(Trial(program=str(program), end_seconds=END_SECONDS))
    assert "No module named 'there_is_none'" in results["handshake"].happened
    assert results["handshake"].to_do.startswith("find out why it ended")


async def test_values_that_only_other_hosts_accept_are_noted(tmp_path: Path) -> None:
    body = (
        "    version = None\n    async def connect_info(self, instance):\n"
        "        info = await super().connect_info(instance)\n"
    )
    info = "        return replace(info, {})\n"
    for number, (values, message) in enumerate(
        {
            "connector=replace(info.connector, protocol='winrm')": "the protocol is winrm",
            "internal_addr='ssh://127.0.0.1:22'": "is 'ssh://127.0.0.1:22'; it has to be a name",
        }.items()
    ):
        program = write_variant(tmp_path / str(number), body + info.format(values))
        init = "    async def init(self, *told): return replace(await super().init(*told), version='1')\n"
        program.write_text(program.read_text().replace("    version = None\n", f"    version = None\n{init}"))
        results = await run_checks(Trial(program=str(program), end_seconds=END_SECONDS))
        notes = messages(results, Outcome.NOTED)
        assert messages(results) == {}
        assert message in notes["says how to connect"]
        assert notes["prints its version"] == "its version is 'None'"


async def test_a_crash_in_init_is_reported(tmp_path: Path) -> None:
    first = f"{PATCH}in_process, sdk\nread = sdk.read_config\n" + (
        "in_process.read_config = lambda kind, given: read(kind, given) if isinstance(given, dict) else os._exit(4)"
    )
    failed = messages(await check_plugin(write_plugin(tmp_path, first=first), tmp_path))
    assert failed.keys() == {"no configuration", "a wrong configuration"}
    assert all("ended with 4" in text for text in failed.values())


async def test_instances_are_deleted_when_the_check_is_cancelled(tmp_path: Path) -> None:
    machines = tmp_path / "machines"
    trial = Trial(program=str(write_plugin(tmp_path)), config={"folder": str(machines)}, end_seconds=END_SECONDS)

    async def run_all() -> None:
        async with aclosing(conformance.try_out(trial)) as results:
            async for _ in results:
                pass

    task = asyncio.create_task(run_all(), name="trial")
    await until(lambda: machines.exists() and list(machines.iterdir()) != [])
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert list(machines.iterdir()) == []
