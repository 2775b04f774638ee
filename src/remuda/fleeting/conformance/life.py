"""State of a conformance run: the plugin's process, calls to it, and the results that later checks use."""

import asyncio
import json
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from grpclib import GRPCError
from grpclib.client import Channel
from grpclib.const import Status
from grpclib.health.v1.health_grpc import HealthStub
from grpclib.health.v1.health_pb2 import HealthCheckRequest

from remuda.fleeting.client import translate_errors
from remuda.fleeting.codec import connector_to_wire
from remuda.fleeting.conformance.values import Check, CheckError, FailedError, NotedError, Outcome, Result, Trial
from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.process import FleetingProcess
from remuda.fleeting.streams import ENDS, hold_broker, read_stdio
from remuda.lib.tasks import TaskOwner
from remuda.lib.waiting import wait_for_event
from remuda.plugins.output import Line
from remuda.wire.proto import fleeting_pb2 as pb
from remuda.wire.proto import fleeting_process_pb2 as own
from remuda.wire.proto.fleeting_abilities_grpc import AbilitiesStub
from remuda.wire.proto.fleeting_grpc import InstanceGroupStub
from remuda.wire.proto.fleeting_process_grpc import GRPCControllerStub

OWNER = "remuda-check"
MOST_SHOWN = 5
MOST_LOGGED = 10
MOST_QUOTED = 200
"""Characters of a log line in a line about a wait."""
DYING_SECONDS = 0.3
_GOING = (pb.State.Value("deleting"), pb.State.Value("deleted"), pb.State.Value("timeout"))
_UNSURE = (Status.DEADLINE_EXCEEDED, Status.CANCELLED)
_ASKING_SECONDS = 0.1
_FIRST_PAUSE_SECONDS, _PAUSE_SECONDS = 0.05, 2.0
QUIET_SECONDS, WORD_SECONDS = 5.0, 15.0
"""A wait is mentioned for the first time after the former, and then at intervals of the latter."""


class Life:
    """State of one run of the checks. Starts the plugin's process, possibly several times one after the other."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.process: FleetingProcess | None = None
        self.channel: Channel | None = None
        self.info = pb.InitResponse()
        self.before: dict[str, int] | None = None
        """Instances that existed before the first Increase."""
        self.made: list[str] = []
        self.accepted = 0
        self.is_in_doubt = False
        """True if further instances may appear: an Increase was not answered."""
        self.held_up: dict[str, float] = {}
        """For Increase and Update: the longest time in seconds in which the plugin answered no other call meanwhile."""
        self.can_connect = True
        """ConnectInfo works. If not, the check of concurrent calls does not call it."""
        self.going: set[str] = set()
        """Instances whose deletion was accepted."""
        self.is_given_up = False
        """True if instances were not deleted in time."""
        self.logged: deque[str] = deque(maxlen=MOST_LOGGED)
        self.stray: list[str] = []
        self._streams = TaskOwner()

    @property
    def is_running(self) -> bool:
        return self.channel is not None and self.process is not None and not self.process.ended.is_set()

    @property
    def stub(self) -> InstanceGroupStub:
        assert self.channel is not None
        return InstanceGroupStub(self.channel)

    @property
    def abilities(self) -> AbilitiesStub:
        assert self.channel is not None
        return AbilitiesStub(self.channel)

    async def start(self) -> None:
        """Stop an earlier plugin process, start one, and open go-plugin's streams (output, broker), as hosts do."""
        await self.stop()
        self.process = FleetingProcess(self.trial.program, say=self._hear, stray=self.stray.append)
        self.channel = await self.process.start()
        self._streams.start(read_stdio(self.channel, lambda _: None), name="stdio of the plugin")
        self._streams.start(hold_broker(self.channel), name="broker of the plugin")

    def _hear(self, line: Line) -> None:
        self.logged.append(line.text)

    async def init(self, config: object) -> pb.InitResponse:
        connector = connector_to_wire(self.trial.connector)
        settings = pb.Settings(connector_config=connector, remuda_owner=OWNER)
        text = json.dumps(config, sort_keys=True, default=str).encode()
        answer: pb.InitResponse = await self.call(
            "Init", self.stub.Init, pb.InitRequest(config=text, settings=settings)
        )
        return answer

    async def begin(self) -> None:
        await self.start()
        self.info = await self.init(dict(self.trial.config))

    async def call(self, what: str, method: Any, request: Any) -> Any:
        """Call `method` of a gRPC stub with the trial's deadline and return the answer. Raises errors as
        `translate_errors` does; `what` names the call in their texts."""
        with translate_errors(what):
            return await method(request, timeout=self.trial.call_seconds)

    async def increase(self, count: int) -> pb.IncreaseResponse:
        self.is_in_doubt = True
        try:
            async with self._measure_health("Increase"):
                request = pb.IncreaseRequest(n=count)
                answer: pb.IncreaseResponse = await self.call("Increase", self.stub.Increase, request)
        except (TemporaryError, PermanentError) as error:
            refused = error.__cause__
            is_answer = isinstance(refused, GRPCError) and refused.status not in _UNSURE
            # Without a text this status is that of a lost connection.
            is_lost = isinstance(refused, GRPCError) and refused.status is Status.UNAVAILABLE and not refused.message
            self.is_in_doubt = not is_answer or is_lost
            raise
        self.is_in_doubt = False
        return answer

    async def update(self) -> dict[str, int]:
        states: dict[str, int] = {}
        with translate_errors("Update"):
            async with self._measure_health("Update"), self.stub.Update.open(timeout=self.trial.call_seconds) as stream:
                await stream.send_message(pb.Empty(), end=True)
                async for answer in stream:
                    if answer.instance in states:
                        raise FailedError(f"Update names {answer.instance!r} twice")
                    states[answer.instance] = answer.state
        return states

    @asynccontextmanager
    async def _measure_health(self, what: str) -> AsyncIterator[None]:
        """While the block makes the call `what`, call Health, and record the slowest answer (or error) in `held_up`."""
        loop, asked = asyncio.get_running_loop(), [math.inf]

        async def ask() -> None:
            assert self.channel is not None
            stub = HealthStub(self.channel)
            while True:
                await asyncio.sleep(_ASKING_SECONDS)
                asked[0] = loop.time()
                with suppress(*ENDS):
                    await stub.Check(HealthCheckRequest(service="plugin"), timeout=self.trial.call_seconds)
                note()

        def note() -> None:
            self.held_up[what] = max(self.held_up.get(what, 0.0), loop.time() - asked[0])
            asked[0] = math.inf

        # Not a TaskGroup, which would wrap the errors of the block.
        tasks = TaskOwner()
        tasks.start(ask(), name=f"health during {what}")
        try:
            yield
        finally:
            note()
            await tasks.close()

    async def new(self) -> dict[str, int]:
        """Call Update; return states by name of instances that did not exist before the run's first Increase."""
        before = self.before or {}
        return {name: state for name, state in (await self.update()).items() if name not in before}

    async def until(
        self, what: str, is_so: Callable[[dict[str, int]], bool], seconds: float, *, since: float = 0.0
    ) -> dict[str, int]:
        """Call `new` repeatedly until `is_so(states)` is true or `seconds` are over; return the last states. `what`:
        the end of "waiting ...", for the lines of `Trial.say`. `since`: how long the wait has lasted before."""
        pause, states = _FIRST_PAUSE_SECONDS, await self.new()
        began = asyncio.get_running_loop().time()
        next_word = max(QUIET_SECONDS - since, 0.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_so(states):
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _PAUSE_SECONDS)
                    states = await self.new()
                    waited = asyncio.get_running_loop().time() - began
                    if waited >= next_word:
                        next_word = waited + WORD_SECONDS
                        self._say_waiting(what, waited + since, max(seconds - waited, 0.0), states)
        return states

    def _say_waiting(self, what: str, waited: float, left: float, states: dict[str, int]) -> None:
        last = f"; the plugin logged: {self.logged[-1][:MOST_QUOTED]}" if self.logged else ""
        times = f"{waited:.0f} s so far, at most {left:.0f} s more"
        self.trial.say(f"waiting {what}: {times}; Update shows {format_states(states)}{last}")

    async def end(self) -> None:
        """Call the plugin's Shutdown as hosts do, without waiting for the end of the process."""
        if self.channel is not None and self.is_running:
            with suppress(*ENDS):
                await GRPCControllerStub(self.channel).Shutdown(own.Empty(), timeout=self.trial.end_seconds)

    async def stop(self) -> None:
        await self.end()
        await self._streams.close()
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        if self.process is not None:
            await self.process.close()

    async def decrease(self, instances: list[str]) -> pb.DecreaseResponse:
        request = pb.DecreaseRequest(instances=instances)
        answer: pb.DecreaseResponse = await self.call("Decrease", self.stub.Decrease, request)
        self.going |= set(answer.succeeded) & set(instances)
        return answer

    async def has_died(self, *, wait: bool) -> bool:
        """True if the process ended by itself. `wait`: up to `DYING_SECONDS`, as a crashing one may answer first."""
        if self.channel is None or self.process is None:
            return False
        if not await wait_for_event(self.process.ended, within_seconds=DYING_SECONDS if wait else 0):
            return False
        await self.process.read_last_words()
        return True

    def words(self, what: str) -> str:
        return self.process.describe(what) if self.process is not None else what


def is_going(state: int) -> bool:
    return state in _GOING


def state_name(state: int) -> str:
    try:
        return str(pb.State.Name(state))
    except ValueError:
        return f"state {state}"


def format_states(states: dict[str, int]) -> str:
    texts = [f"{name} {state_name(state)}" for name, state in list(states.items())[:MOST_SHOWN]]
    return ", ".join(texts + (["..."] if len(states) > MOST_SHOWN else [])) or "nothing"


def need(is_so: object, happened: str) -> None:
    if not is_so:
        raise FailedError(happened)


async def run_check(check: Check, life: Life) -> Result:
    """Run a check and return its result. The check fails if it raises an error or the plugin's process ends in it."""
    outcome, happened, was_running = Outcome.PASSED, "", life.is_running
    to_do = check.to_do
    life.logged.clear()
    try:
        await check.run(life)
    except CheckError as error:
        outcome = Outcome.NOTED if isinstance(error, NotedError) else Outcome.FAILED
        happened, to_do = str(error), error.to_do or to_do
    except (TemporaryError, PermanentError) as error:
        outcome, happened = Outcome.FAILED, str(error) or type(error).__name__
    except OSError as error:
        outcome, happened = Outcome.FAILED, f"the program cannot be run: {error}"
    # Waiting for the end also collects the log, which arrives independently of the answers.
    is_dead = outcome is not Outcome.NOTED and await life.has_died(wait=outcome is Outcome.FAILED)
    if was_running and is_dead:
        assert life.process is not None
        died = life.words(f"ended with {life.process.exit_code}")
        outcome, happened = Outcome.FAILED, f"{happened}; {died}" if happened else died
    return Result(
        name=check.name,
        outcome=outcome,
        expected=check.expected,
        happened=happened,
        to_do=to_do if outcome is not Outcome.PASSED else "",
        logged=tuple(life.logged) if outcome is Outcome.FAILED else (),
    )
