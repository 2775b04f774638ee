"""The conformance check: passed by what `new` writes, and clear about what is broken."""

import asyncio
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
OLD = "an-old-one"


def written(folder: Path, *, first: str = "", **replacing: dict[str, str]) -> Path:
    """What `new` writes, with code that runs first, and with other code in its modules."""
    for one in files("herd", "python", python=sys.executable):
        path = folder / one.path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = one.text
        for old, new in replacing.get(path.stem, {}).items():
            assert old in text
            text = text.replace(old, new)
        path.write_text(text.replace(BEGIN, f"{first}\n{BEGIN}", 1) if one.is_program else text)
        path.chmod(0o755)
    return folder / "fleeting-plugin-herd"


PATIENT = 30.0
"""For the end of a process, where a test is not about that: the machine may be busy."""
QUICK = {"boot_seconds": 3.0, "call_seconds": 10.0, "least_seconds": 3.0}
"""For faults that are found when a time limit is over."""


async def results(program: Path, folder: Path, **how: Any) -> dict[str, Result]:
    trial = Trial(
        program=str(program),
        config={"folder": str(folder / "machines")},
        **{"end_seconds": PATIENT} | how,
    )
    found = {one.name: one async for one in conformance.try_out(trial)}
    await until(lambda: not [words for _, words in processes() if str(program) in words])
    return found


def told(found: dict[str, Result], outcome: Outcome = Outcome.FAILED) -> dict[str, str]:
    return {name: one.happened for name, one in found.items() if one.outcome is outcome}


async def test_what_new_writes_passes(tmp_path: Path) -> None:
    found = await results(written(tmp_path), tmp_path, instances=2)
    assert told(found) == told(found, Outcome.NOTED) == {}
    assert len(found) > 25
    assert list((tmp_path / "machines").iterdir()) == []


@pytest.mark.parametrize("kind", [TableGroup, PlainGroup])
async def test_what_a_plugin_forgets_or_has_not_is_no_failure(tmp_path: Path, kind: type[PlainGroup]) -> None:
    trial = Trial(program=str(a_plugin(tmp_path, kind)), boot_seconds=5.0, end_seconds=PATIENT)
    found = {one.name: one async for one in conformance.try_out(trial)}
    assert told(found) == {}
    assert "is not known any more" in told(found, Outcome.NOTED)["remembers its instances"]


PATCH = (
    "import os, sys, asyncio, signal\nfrom remuda.wire.proto import fleeting_pb2 as pb\nfrom remuda.fleeting import "
)
FATAL: dict[str, tuple[str, str, dict[str, Any]]] = {
    "prints before its handshake": (
        "handshake",
        "this is no handshake: 'Welcome!'",
        {"first": "print('Welcome!', flush=True)"},
    ),
    "never says a word": ("handshake", "ended with 7 before its handshake", {"first": "import os; os._exit(7)"}),
    "refuses its configuration": (
        "begins",
        "there is no setting folder; did you mean fodler?",
        {"plugin": {"    folder: str": "    fodler: str", "config.folder": "config.fodler"}},
    ),
    "has no room": ("begins", "max_size 0", {"plugin": {"max_size=config.max_size)": "max_size=0)"}}),
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
        "1 were accepted, and 2 came",
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


@pytest.mark.parametrize(("name", "words", "how"), FATAL.values(), ids=FATAL)
async def test_what_ends_the_trial_is_explained(tmp_path: Path, name: str, words: str, how: dict[str, Any]) -> None:
    found = await results(written(tmp_path, **how), tmp_path, **QUICK)
    assert words in told(found)[name]
    assert found[name].expected
    assert found[name].to_do
    machines = tmp_path / "machines"
    assert not machines.exists() or list(machines.iterdir()) == []


MANY = (
    {  # of its program, and of calls that fail without an end of the process
        "tells its version": "without lines Name: and Version:",
        "serves nobody without a host": "it was still running",
        "a wrong configuration": "Init took a text",
        "instances come to run": "is deleting although its deletion was not requested",
        "says how to connect": "has no address",
        "an instance that is not there": "has the address",
        "heartbeat": "not well at all",
        "suspends and resumes": "accepted []",
        "other abilities": "Recover does not find",
        "many calls at once": "too many at once",
        "deletes instances": "it did not accept",
        "keeps stdout clean": "lines came there, the first: ['hello']",
        "ends when it is told to": "still there",
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
    {  # of what comes after
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
        "instances go": "there still are",
        "leaves the others alone": f"{OLD} was there before",
        "goes on after Shutdown": "ended with 5",
        "nothing is left": "there still are",
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
        "provider": {"shutil.rmtree(self.folder / name,": f"shutil.rmtree(self.folder / '{OLD}',"},
    },
)  # fmt: skip


@pytest.mark.parametrize(("expected", "how"), [MANY, LATER, DELETING], ids=["many", "later", "deleting"])
async def test_every_fault_is_found_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, str], how: dict[str, Any]
) -> None:
    # A plugin that does not end fails two checks, each after this time.
    seconds = 1.5 if "serves nobody without a host" in expected else PATIENT
    monkeypatch.setattr("remuda.fleeting.conformance.program.SECONDS", seconds)
    monkeypatch.setattr("remuda.fleeting.conformance.ending.ORPHAN_SECONDS", seconds)
    (tmp_path / "machines" / OLD).mkdir(parents=True)
    (tmp_path / "machines" / OLD / "owner").touch()
    end_seconds = 2.0 if "ends when it is told to" in expected else PATIENT
    failed = told(await results(written(tmp_path, **how), tmp_path, **QUICK, end_seconds=end_seconds))
    assert failed.keys() == expected.keys()
    assert {name: text for name, text in failed.items() if expected[name] not in text} == {}


@pytest.mark.parametrize(
    ("call", "how"),
    [
        (
            "Increase",
            {"        for made in range(count):": "        time.sleep(1.5)\n        for made in range(count):"},
        ),
        ("Update", {"        return {machine.name:": "        time.sleep(0.8)\n        return {machine.name:"}),
    ],
)
async def test_a_call_that_blocks_the_others_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, how: dict[str, str]
) -> None:
    monkeypatch.setattr("remuda.fleeting.conformance.calls.HELD_UP_SECONDS", 0.5)
    monkeypatch.setattr("remuda.fleeting.conformance.calls.AT_ONCE", 1)
    program = written(tmp_path, plugin={"import logging": "import logging\nimport time", **how})
    found = await results(program, tmp_path)
    noted = told(found, Outcome.NOTED)["answers meanwhile"]
    assert f"it answered no other call during {call} for" in noted
    assert "asyncio.to_thread" in found["answers meanwhile"].to_do


async def test_what_comes_of_a_call_without_an_answer_is_deleted(tmp_path: Path) -> None:
    late = (
        "        import asyncio, threading\n"
        "        later = lambda: asyncio.run(self.provider.make('late', ''))\n"
        "        threading.Timer(1.5, later).start()\n        await asyncio.sleep(60)\n"
        "        for made in range(count):"
    )
    program = written(tmp_path, plugin={"        for made in range(count):": late})
    found = await results(program, tmp_path, call_seconds=1.0, least_seconds=20.0)
    assert told(found) == {"makes instances": "the plugin has not answered Increase in time"}
    assert list((tmp_path / "machines").iterdir()) == []


async def test_one_that_starts_only_once_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.fleeting.conformance.ending.START_SECONDS", 5.0)
    long = tmp_path / "long"
    first = f"import os\nif os.path.exists({str(long)!r}): os.write(1, b'x' * 200_000)"
    program = written(tmp_path, first=first)
    trial = Trial(program=str(program), config={"folder": str(tmp_path / "machines")}, boot_seconds=1.0)
    async for one in conformance.try_out(trial):
        if one.name == "ends when it is told to":
            long.touch()
    assert (one.name, one.happened) == ("ends with its host", "started again it printed no handshake")


def a_variant(folder: Path, body: str, *, first: str = "") -> Path:
    """A program of the table, with other methods."""
    text = (
        f"#!{sys.executable}\n{first}\nimport sys\nfrom dataclasses import replace\nfrom remuda.fleeting import serve\n"
    )
    text += f"from remuda.testing.instance_groups import TableGroup\n\nclass Variant(TableGroup):\n{body}\n"
    return a_program(folder, f"{text}\nsys.exit(serve(Variant()))\n")


ALONE: dict[str, tuple[str, str, str]] = {
    "init": ("begins", "KeyError: 'region' (fleeting-plugin-odd:", "    async def init(self, *_): return {}['region']"),
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


@pytest.mark.parametrize(("name", "words", "body"), ALONE.values(), ids=ALONE)
async def test_one_fault_is_told_once_and_with_what_was_logged(
    tmp_path: Path, name: str, words: str, body: str
) -> None:
    noisy = f"    print('thinking', file=sys.stderr)\n{body}"
    found = {
        one.name: one
        async for one in conformance.try_out(Trial(program=str(a_variant(tmp_path, noisy)), end_seconds=PATIENT))
    }
    assert told(found).keys() == {name}, told(found)
    assert words in found[name].happened
    if "KeyError" in words:
        assert any("Traceback" in text and "region" in text for text in found[name].logged)


async def test_one_that_cannot_delete_is_not_waited_for(tmp_path: Path) -> None:
    program = a_variant(tmp_path, "    async def decrease(self, instances): raise OSError('no right to')")
    found = {one.name: one async for one in conformance.try_out(Trial(program=str(program), least_seconds=100.0))}
    assert {"deletes instances", "instances go", "nothing is left"} <= told(found).keys()


async def test_why_one_ended_before_its_handshake_is_what_to_mend(tmp_path: Path) -> None:
    program = a_variant(tmp_path, "    pass", first="import sys\nsys.argv[1:] or __import__('there_is_none')")
    found = {one.name: one async for one in conformance.try_out(Trial(program=str(program), end_seconds=PATIENT))}
    assert "No module named 'there_is_none'" in found["handshake"].happened
    assert found["handshake"].to_do.startswith("find out why it ended")


async def test_what_only_other_hosts_take_is_noted(tmp_path: Path) -> None:
    body = (
        "    version = None\n    async def connect_info(self, instance):\n"
        "        info = await super().connect_info(instance)\n"
    )
    info = "        return replace(info, {})\n"
    for number, (values, words) in enumerate(
        {
            "connector=replace(info.connector, protocol='winrm')": "the protocol is winrm",
            "internal_addr='ssh://127.0.0.1:22'": "is 'ssh://127.0.0.1:22'; it has to be a name",
        }.items()
    ):
        program = a_variant(tmp_path / str(number), body + info.format(values))
        init = "    async def init(self, *told): return replace(await super().init(*told), version='1')\n"
        program.write_text(program.read_text().replace("    version = None\n", f"    version = None\n{init}"))
        found = {one.name: one async for one in conformance.try_out(Trial(program=str(program), end_seconds=PATIENT))}
        noted = told(found, Outcome.NOTED)
        assert told(found) == {}
        assert words in noted["says how to connect"]
        assert noted["tells its version"] == "its version is 'None'"


async def test_a_crash_in_init_is_named(tmp_path: Path) -> None:
    first = f"{PATCH}in_process, sdk\nread = sdk.read_config\n" + (
        "in_process.read_config = lambda kind, given: read(kind, given) if isinstance(given, dict) else os._exit(4)"
    )
    failed = told(await results(written(tmp_path, first=first), tmp_path))
    assert failed.keys() == {"no configuration", "a wrong configuration"}
    assert all("ended with 4" in words for words in failed.values())


async def test_what_was_made_is_deleted_when_the_trial_is_given_up(tmp_path: Path) -> None:
    machines = tmp_path / "machines"
    trial = Trial(program=str(written(tmp_path)), config={"folder": str(machines)}, end_seconds=PATIENT)

    async def go_through() -> None:
        async with aclosing(conformance.try_out(trial)) as trying:
            async for _ in trying:
                pass

    task = asyncio.create_task(go_through(), name="trial")
    await until(lambda: machines.exists() and list(machines.iterdir()) != [])
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert list(machines.iterdir()) == []
