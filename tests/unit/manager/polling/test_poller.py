"""A poller against a fake server: every request waits until the test answers it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict

from remuda.lib.clock import VirtualClock, settle
from remuda.manager.config.values import RemudaConfig, RunnerConfig
from remuda.manager.core.poll_pace import Health
from remuda.manager.core.slots import Slot
from remuda.manager.environments.port import UNKNOWN_BYTES
from remuda.manager.errors import NotStoredError
from remuda.manager.polling.poller import ADAPTIVE_FLAG, Poller, PollerContext
from remuda.manager.polling.room import Room
from remuda.telemetry import logs
from remuda.testing.environment import FakeEnvironment
from remuda.wire import runner_server
from remuda.wire.http_session import Answer, HttpSession
from remuda.wire.runner_api import RunnerInfo
from remuda.wire.runner_client import JobOffer, RunnerClient


class Reply:
    def __init__(self, status: int, body: object = None, **headers: str) -> None:
        self.status = status
        self.headers = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
        if body is not None:
            self.headers["Content-Type"] = "application/json"
        self._body = json.dumps(body).encode() if body is not None else b""

    @property
    def content(self) -> Any:
        raise NotImplementedError

    async def read(self) -> bytes:
        return self._body


class Server(HttpSession):
    """Requests that wait for an answer, oldest first."""

    def __init__(self) -> None:
        super().__init__({})
        self.waiting: list[tuple[dict[str, Any], asyncio.Future[Answer]]] = []
        self.ids: list[str] = []
        self.updates: list[dict[str, Any]] = []
        self.reported: list[str] = []
        self.report_status = 204
        self.hung_up = 0
        self._jobs = 100

    @asynccontextmanager
    async def request(self, method: str, url: str, **call: Any) -> AsyncIterator[Answer]:
        body = json.loads(call["data"])
        if method == "PUT":
            self.updates.append(body)
            yield Reply(200)
            return
        if url.endswith("/api/remuda/v1/runners/problem"):
            self.reported.append(body["problem"])
            yield Reply(self.report_status)
            return
        self.ids.append(call["headers"]["X-Request-Id"])
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting.append((body, future))
        try:
            yield await future
        except asyncio.CancelledError:
            self.hung_up += 1
            raise

    async def answer(self, status: int, body: object = None, **headers: str) -> None:
        _, future = self.waiting.pop(0)
        future.set_result(Reply(status, body, **headers))
        await settle()

    async def hand_out(self, **headers: str) -> None:
        self._jobs += 1
        await self.answer(201, {"id": self._jobs, "token": f"glcbt-{self._jobs}"}, **headers)

    async def cut(self) -> None:
        self.waiting.pop(0)[1].set_exception(ConnectionResetError("cut"))
        await settle()


class Bench:
    """Creates pollers and takes the jobs that they receive."""

    def __init__(self, environment: FakeEnvironment) -> None:
        self.clock = VirtualClock()
        self.environment = environment
        self.taken_jobs: list[tuple[str, Slot]] = []
        self.accepts_jobs = True
        self.store_problem = ""
        self.job_problem_text = ""
        self.room = Room(concurrent=100, limits={"abcdefghi": 0})

    def poller(
        self,
        server: Server,
        *,
        after: Poller | None = None,
        find_obstacle: Callable[[], Awaitable[str]] | None = None,
        **changes: Any,
    ) -> Poller:
        runner = RunnerConfig(
            url="http://127.0.0.1:1", token=changes.pop("token", "glrt-abcdefghijkl"), executor="shell", **changes
        )
        client = RunnerClient(
            runner_server.Server(url=runner.url, session=server, clock=self.clock),
            token=runner.token,
            system_id="s_1",
            info=RunnerInfo(),
        )
        context = PollerContext(
            room=self.room,
            clock=self.clock,
            check_interval_seconds=3.0,
            take=self._take,
            job_problem=lambda _: self.job_problem_text,
        )
        return Poller(runner, client, context, self.environment, find_obstacle=find_obstacle, after=after)

    async def _take(self, runner: RunnerConfig, offer: JobOffer, slot: Slot) -> bool:
        if self.store_problem:
            raise NotStoredError(self.store_problem)
        if self.accepts_jobs:
            self.taken_jobs.append((runner.short_token, slot))
        return self.accepts_jobs


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    environment = FakeEnvironment(tmp_path)
    yield Bench(environment)
    await environment.remove()


@asynccontextmanager
async def run(*pollers: Poller) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(poller.run()) for poller in pollers]
        await settle()
        yield
        for task in tasks:
            task.cancel()


async def test_open_requests_grow_with_jobs_and_shrink_without(bench: Bench) -> None:
    server = Server()
    poller = bench.poller(server, request_concurrency=3)
    async with run(poller):
        assert len(server.waiting) == 1
        await server.hand_out()
        assert len(server.waiting) == 2
        for _ in range(10):
            await server.hand_out()
        assert len(server.waiting) == 3
        assert poller.status.adaptive_limit == poller.status.hard_limit == 3
        for _ in range(20):
            await bench.clock.advance(50)
            while server.waiting:
                await server.answer(204)
        await bench.clock.advance(50)
        assert len(server.waiting) == 1
    assert len(bench.taken_jobs) == 11
    assert bench.room.free == 100 - 11


async def test_all_requests_are_sent_at_once_without_the_adaptive_limit(bench: Bench) -> None:
    server = Server()
    async with run(bench.poller(server, request_concurrency=3, feature_flags={ADAPTIVE_FLAG: False})):
        assert len(server.waiting) == 3


async def test_no_request_without_a_slot(bench: Bench) -> None:
    server = Server()
    bench.room = Room(concurrent=2, limits={"abcdefghi": 0})
    async with run(bench.poller(server, request_concurrency=9)):
        await server.hand_out()
        await server.hand_out()
        assert server.waiting == []
        bench.room.release(bench.taken_jobs[0][1])
        await settle()
        assert len(server.waiting) == 1


async def test_a_refused_job_frees_its_slot(bench: Bench) -> None:
    server = Server()
    bench.accepts_jobs = False
    bench.room = Room(concurrent=1, limits={"abcdefghi": 0})
    async with run(bench.poller(server)):
        await server.hand_out()
        assert len(server.waiting) == 1


async def test_a_failing_server_gets_one_request_and_other_servers_are_not_affected(bench: Bench) -> None:
    bad, good = Server(), Server()
    bench.room = Room(concurrent=100, limits={"abcdefghi": 0, "zyxwvutsr": 0})
    troubled = bench.poller(bad, request_concurrency=3, feature_flags={ADAPTIVE_FLAG: False})
    well = bench.poller(good, token="glrt-zyxwvutsrqpo")
    async with run(troubled, well):
        while bad.waiting:
            await bad.cut()
        assert troubled.status.health is Health.TROUBLED
        assert "closed the connection" in troubled.status.problem
        assert (bad.waiting, len(good.waiting)) == ([], 1)
        await bench.clock.advance(5)
        assert len(bad.waiting) == 1
        await good.hand_out()
        assert bench.taken_jobs == [("zyxwvutsr", Slot("zyxwvutsr", 0))]
        await bad.answer(204)
        assert (troubled.status.health, troubled.status.problem) == (Health.WELL, "")
        assert len(bad.waiting) == 3


@pytest.mark.parametrize("status", [403, 422, 429, 500, 503])
async def test_waits_grow_up_to_a_minute(bench: Bench, status: int) -> None:
    server = Server()
    async with run(bench.poller(server)):
        for _ in range(12):
            if not server.waiting:
                await bench.clock.advance(61)
            await server.answer(status)
        assert len(server.ids) == 12
        await bench.clock.advance(0.4)
        assert server.waiting == []
        await bench.clock.advance(60)
        assert len(server.waiting) == 1


async def test_retry_after_is_respected(bench: Bench) -> None:
    server = Server()
    poller = bench.poller(server)
    async with run(poller):
        await server.answer(429, {"message": "too many"}, Retry_After="60")
        assert "too many" in poller.status.problem
        assert poller.status.next_at >= bench.clock.now() + 60
        await bench.clock.advance(59)
        assert server.waiting == []
        await bench.clock.advance(8)
        assert len(server.waiting) == 1


async def test_a_failed_request_is_repeated_with_the_same_id(bench: Bench) -> None:
    server = Server()
    async with run(bench.poller(server)):
        await server.cut()
        await bench.clock.advance(1)
        await server.answer(502)
        await bench.clock.advance(2)
        await server.answer(204)
        assert server.ids[0] == server.ids[1] == server.ids[2] != server.ids[3]


async def test_the_next_poller_of_a_runner_repeats_the_request_that_was_ended(bench: Bench) -> None:
    server = Server()
    old = bench.poller(server)
    new = bench.poller(server, after=old, request_concurrency=2)
    async with run(old, new):
        assert len(server.ids) == 1
        await bench.clock.advance(2.5)
        old.retire()
        await bench.clock.advance(4)
        assert server.hung_up == 1
        assert len(server.ids) == 2
        assert server.ids[0] == server.ids[1]


async def test_the_cursor_is_sent_back_and_a_held_request_is_followed_at_once(bench: Bench) -> None:
    server = Server()
    async with run(bench.poller(server)):
        assert "last_update" not in server.waiting[0][0]
        await server.answer(204, X_GitLab_Last_Update="abc")
        assert server.waiting[0][0]["last_update"] == "abc"
        await bench.clock.advance(50)
        await server.answer(204)
        assert server.waiting[0][0]["last_update"] == "abc"


async def test_requests_for_the_last_slot_have_no_cursor(bench: Bench) -> None:
    first, second = Server(), Server()
    bench.room = Room(concurrent=1, limits={"abcdefghi": 0, "zyxwvutsr": 0})
    async with run(bench.poller(first), bench.poller(second, token="glrt-zyxwvutsrqpo")):
        await first.answer(204, X_GitLab_Last_Update="abc")
        await second.answer(204, X_GitLab_Last_Update="abc")
        await bench.clock.advance(3)
        assert "last_update" not in first.waiting[0][0]


async def test_the_first_request_after_an_outage_is_not_held(bench: Bench) -> None:
    server = Server()
    poller = bench.poller(server)
    async with run(poller):
        await server.answer(204, X_GitLab_Last_Update="c1", X_Remuda_Cell="1")
        await settle()
        assert "hold_seconds" in server.waiting[0][0]
        await server.cut()
        assert poller.status.health is Health.TROUBLED
        await bench.clock.advance(1)
        assert "hold_seconds" not in server.waiting[0][0], "the server answers at once, so its health is known at once"
        await server.answer(204)
        assert (poller.status.health, poller.status.problem) == (Health.WELL, "")
        assert "hold_seconds" in server.waiting[0][0], "and there is no pause before the next one"


async def test_hold_seconds_are_sent_only_to_a_cell(bench: Bench) -> None:
    cell, gitlab = Server(), Server()
    bench.room = Room(concurrent=9, limits={"abcdefghi": 0, "zyxwvutsr": 0})
    async with run(bench.poller(cell), bench.poller(gitlab, token="glrt-zyxwvutsrqpo")):
        assert "hold_seconds" not in cell.waiting[0][0], "the first request must not be held"
        await cell.answer(204, X_GitLab_Last_Update="abc", X_Remuda_Cell="1")
        await gitlab.answer(204, X_GitLab_Last_Update="abc")
        assert cell.waiting[0][0]["hold_seconds"] >= 50
        assert "hold_seconds" not in gitlab.waiting[0][0]


async def test_a_held_request_ends_when_another_runner_needs_its_slot(bench: Bench) -> None:
    """Both requests were held. One runner gets a job, which uses its slot, and must be able to request the next one."""
    first, second = Server(), Server()
    bench.room = Room(concurrent=2, limits={"abcdefghi": 0, "zyxwvutsr": 0})
    async with run(bench.poller(first), bench.poller(second, token="glrt-zyxwvutsrqpo")):
        for server in (first, second):
            await server.answer(204, X_GitLab_Last_Update="abc", X_Remuda_Cell="1")
            assert "hold_seconds" in server.waiting[0][0]
        await second.hand_out(X_Remuda_Cell="1")
        await settle()
        assert (first.hung_up, len(second.waiting)) == (1, 1)
        assert "last_update" not in second.waiting[0][0], (
            "a request without cursor is not held, so the first runner is blocked only shortly"
        )
        await second.answer(204, X_Remuda_Cell="1")
        assert len(first.waiting) == 2, "the repeated request and the next one"
        assert first.ids[-1] == first.ids[-2]


async def test_a_request_to_gitlab_is_ended_only_after_it_must_be_held(bench: Bench) -> None:
    first, second = Server(), Server()
    bench.room = Room(concurrent=2, limits={"abcdefghi": 0, "zyxwvutsr": 0})
    async with run(bench.poller(first), bench.poller(second, token="glrt-zyxwvutsrqpo")):
        for server in (first, second):
            await server.answer(204, X_GitLab_Last_Update="abc")
        await second.hand_out()
        assert (first.hung_up, second.waiting) == (0, [])
        await bench.clock.advance(2.5)
        assert (first.hung_up, len(second.waiting)) == (1, 1)


async def test_a_strict_interval_applies_after_a_job_too(bench: Bench) -> None:
    server = Server()
    async with run(bench.poller(server, strict_check_interval=True)):
        await server.hand_out()
        await bench.clock.advance(2.9)
        assert server.waiting == []
        await bench.clock.advance(0.2)
        assert len(server.waiting) == 1


async def test_a_job_that_cannot_be_read_is_refused_at_once(bench: Bench) -> None:
    server = Server()
    poller = bench.poller(server)
    async with run(poller):
        await server.answer(201, {"id": 7, "token": "glcbt-7", "steps": "none"})
        assert [update["failure_reason"] for update in server.updates] == ["runner_system_failure"]
        assert "cannot be read" in poller.status.problem
    assert bench.room.free == 100


class TestDisk:
    async def test_low_disk_space_is_logged_once_and_stops_requests(self, bench: Bench) -> None:
        levels: list[str] = []
        logs.notify_of_problems("manager", levels.append)
        server = Server()
        bench.environment.disk_free_bytes = 5 << 20
        poller = bench.poller(server, remuda=RemudaConfig(least_disk="1g"))
        async with run(poller):
            await bench.clock.advance(100)
            assert server.ids == []
            assert poller.status.is_blocked
            assert "5 MiB are free where jobs run, and least_disk asks for 1024 MiB" in poller.status.problem
            bench.environment.disk_free_bytes = 2 << 30
            await bench.clock.advance(10)
            assert len(server.waiting) == 1
            assert poller.status.problem == ""
        assert levels == ["error"]

    async def test_an_obstacle_stops_requests_and_is_reported_to_the_cell(self, bench: Bench) -> None:
        server, problem = Server(), "no container engine"

        async def find() -> str:
            return problem

        poller = bench.poller(server, find_obstacle=find)
        async with run(poller):
            await settle()
            assert (server.waiting, poller.status.is_blocked, poller.status.problem) == ([], True, problem)
            assert server.reported == [problem]
            await bench.clock.advance(130)
            assert server.reported == [problem] * 3
            problem = ""
            await bench.clock.advance(11)
            assert (len(server.waiting), poller.status.is_blocked, poller.status.problem) == (1, False, "")
            problem = "the engine has ended"
            await bench.clock.advance(40)
            assert (server.waiting[1:], server.hung_up, server.reported[-1]) == ([], 1, problem)

    async def test_a_server_without_that_call_gets_one_report(self, bench: Bench) -> None:
        server = Server()
        server.report_status = 404

        async def find() -> str:
            return "no container engine"

        async with run(bench.poller(server, find_obstacle=find)):
            await bench.clock.advance(300)
            assert len(server.reported) == 1

    async def test_unknown_disk_space_does_not_block(self, bench: Bench) -> None:
        server = Server()
        bench.environment.disk_free_bytes = UNKNOWN_BYTES
        poller = bench.poller(server, remuda=RemudaConfig(least_disk="1g"))
        async with run(poller):
            await bench.clock.advance(1)
            assert len(server.waiting) == 1
            assert (poller.status.disk_free_bytes, poller.status.is_blocked) == (None, False)

    async def test_disk_space_is_not_read_for_every_job(self, bench: Bench) -> None:
        server = Server()
        async with run(bench.poller(server)):
            for _ in range(10):
                await server.hand_out()
            assert bench.environment.calls["usage"] == 1

    async def test_held_requests_end_when_the_disk_gets_full(self, bench: Bench) -> None:
        server = Server()
        poller = bench.poller(server, remuda=RemudaConfig(least_disk="1g"))
        async with run(poller):
            await server.answer(204, X_Remuda_Cell="1")
            await bench.clock.advance(11)
            assert (server.hung_up, bench.environment.calls["usage"]) == (0, 2)
            bench.environment.disk_free_bytes = 5 << 20
            await bench.clock.advance(10)
            assert (server.hung_up, poller.status.open_requests, poller.status.is_blocked) == (1, 0, True)
            await bench.clock.advance(60)
            assert len(server.ids) == 2
            bench.environment.disk_free_bytes = 2 << 30
            await bench.clock.advance(10)
            assert server.ids[2] == server.ids[1], (
                "with the same id, a cell answers with a job that it handed out meanwhile"
            )
        assert bench.room.free == 100


class TestUnstored:
    async def test_a_cell_gets_the_same_request_again_later(self, bench: Bench) -> None:
        levels: list[str] = []
        logs.notify_of_problems("manager", levels.append)
        server = Server()
        bench.store_problem = "the journal cannot be written"
        poller = bench.poller(server)
        async with run(poller):
            await server.hand_out(X_Remuda_Cell="1")
            assert (server.waiting, server.updates) == ([], [])
            assert poller.status.problem == "the journal cannot be written"
            await bench.clock.advance(5)
            await server.hand_out(X_Remuda_Cell="1")
            bench.store_problem = ""
            await bench.clock.advance(5)
            assert server.waiting == []
            await bench.clock.advance(5)
            await server.hand_out(X_Remuda_Cell="1")
            assert server.ids[0] == server.ids[1] == server.ids[2] != server.ids[3]
            assert poller.status.problem == ""
        assert len(bench.taken_jobs) == 1
        assert levels == ["error"]
        assert bench.room.free == 99

    async def test_another_server_is_told_at_once_that_the_job_failed(self, bench: Bench) -> None:
        server = Server()
        bench.store_problem = "the journal cannot be written"
        async with run(bench.poller(server)):
            await server.hand_out()
            assert [update["failure_reason"] for update in server.updates] == ["runner_system_failure"]
            assert server.waiting == []
            await bench.clock.advance(5)
            assert server.ids[0] != server.ids[1]
        assert bench.room.free == 100


async def test_jobs_without_an_answer_affect_the_health(bench: Bench) -> None:
    server = Server()
    poller = bench.poller(server)
    async with run(poller):
        bench.job_problem_text = "the server cannot be reached; 4 jobs wait: refused"
        assert (poller.status.health, poller.status.problem) == (Health.TROUBLED, bench.job_problem_text)
        bench.job_problem_text = ""
        assert (poller.status.health, poller.status.problem) == (Health.WELL, "")


class TestRetiring:
    async def run_until_retired(self, bench: Bench, act: Callable[[Server, Poller], Any]) -> Server:
        server = Server()
        poller = bench.poller(server)
        async with asyncio.TaskGroup() as group:
            group.create_task(poller.run())
            await settle()
            await act(server, poller)
            poller.retire()
            await settle()
            await bench.clock.advance(4)
        assert bench.room.requesting == 0
        return server

    async def test_a_request_to_a_cell_is_ended_at_once(self, bench: Bench) -> None:
        async def act(server: Server, _: Poller) -> None:
            await server.answer(204, X_Remuda_Cell="1")

        server = await self.run_until_retired(bench, act)
        assert server.hung_up == 1

    async def test_a_new_request_to_another_server_may_still_get_a_job(self, bench: Bench) -> None:
        async def act(server: Server, poller: Poller) -> None:
            poller.retire()
            await settle()
            assert server.hung_up == 0
            await server.hand_out()

        server = await self.run_until_retired(bench, act)
        assert len(bench.taken_jobs) == 1
        assert server.waiting == []

    async def test_a_held_request_is_ended(self, bench: Bench) -> None:
        async def act(_: Server, __: Poller) -> None:
            await bench.clock.advance(30)

        server = await self.run_until_retired(bench, act)
        assert server.hung_up == 1
