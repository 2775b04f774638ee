"""Errors for plugins that return invalid values or raise unexpected exceptions, in process and over gRPC."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from grpclib.testing import ChannelFor

from remuda.fleeting.client import Deadlines, WireGroup
from remuda.fleeting.errors import TemporaryError
from remuda.fleeting.in_process import InProcess
from remuda.fleeting.port import (
    ConnectInfo,
    Connector,
    GroupStats,
    InstanceState,
    ProviderInfo,
    Settings,
    TaggedInstance,
)
from remuda.fleeting.services import services
from remuda.fleeting.status_details import Details
from remuda.telemetry.logs import logger
from remuda.testing.instance_groups import PlainGroup, TableGroup

CALLS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "init": lambda group: group.init({}, Settings()),
    "update": lambda group: group.update(),
    "increase": lambda group: group.increase(2),
    "decrease": lambda group: group.decrease(["a"]),
    "connect_info": lambda group: group.connect_info("a"),
    "stats": lambda group: group.stats(),
    "recover": lambda group: group.recover(),
}
WRONG: list[tuple[str, Any, str]] = [
    ("init", None, r"init\(\) returned None; it has to return a ProviderInfo"),
    ("init", ProviderInfo(id="x", max_size=1.5), r"init\(\): max_size has to be a whole number, not a number"),  # type: ignore[arg-type]
    ("init", ProviderInfo(id="x", max_size=1, version=1), r"init\(\): version has to be a text"),  # type: ignore[arg-type]
    ("update", {"m": "running"}, r"update\(\) returned 'running' as the state of m; it has to be an InstanceState"),
    ("update", {7: InstanceState.RUNNING}, r"update\(\) returned 7 as a name of an instance; it has to be a str"),
    ("update", ["m"], r"update\(\) returned a list; it has to return a dict of names"),
    ("increase", None, r"increase\(\) returned None; it has to return how many were accepted, an int"),
    ("decrease", "a", r"decrease\(\) returned a str; it has to return the names"),
    ("decrease", [3], r"decrease\(\) returned an int as a name"),
    ("connect_info", {"password": "secret"}, r"connect_info\(\) returned a dict; it has to return a ConnectInfo"),
    ("connect_info", ConnectInfo(connector=Connector(port="22")), r"connector.port has to be a whole number"),  # type: ignore[arg-type]
    ("connect_info", ConnectInfo(connector=None), r"connect_info\(\): connector has to be a Connector, not None"),  # type: ignore[arg-type]
    ("stats", {"quota": 3}, r"stats\(\) returned a dict; it has to return a GroupStats"),
    ("recover", ["a"], r"recover\(\) returned a str; it has to return a TaggedInstance"),
]  # fmt: skip
UNSENDABLE: list[tuple[str, Any]] = [
    ("connect_info", ConnectInfo(connector=Connector(port=2**80), internal_addr="x")),
    ("stats", GroupStats(quota=2**80)),
    ("recover", [TaggedInstance(instance="a", owner="b", created_at=math.nan)]),
]


def group_returning(method: str, value: Any) -> TableGroup:
    async def return_value(*_: Any) -> Any:
        return value

    return group_with_method(method, return_value)


def group_with_method(method: str, function: Callable[..., Any]) -> TableGroup:
    group = TableGroup()
    setattr(group, method, function)
    return group


async def call_method(group: Any, method: str) -> Any:
    if method != "init":
        await CALLS["init"](group)
    return await CALLS[method](group)


async def call_over_the_wire(plugin: TableGroup, method: str) -> Any:
    async with ChannelFor(services(plugin, lambda: None), status_details_codec=Details()) as channel:
        return await call_method(WireGroup(channel, logger("test"), Deadlines()), method)


@pytest.mark.parametrize(("method", "value", "words"), WRONG)
async def test_an_invalid_return_value_is_described_in_terms_of_the_method(method: str, value: Any, words: str) -> None:
    for call in (
        call_method(InProcess(group_returning(method, value)), method),
        call_over_the_wire(group_returning(method, value), method),
    ):
        with pytest.raises(TemporaryError, match=words) as caught:
            await call
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("method", "value"), UNSENDABLE)
async def test_a_value_that_no_message_can_hold_is_reported(method: str, value: Any) -> None:
    with pytest.raises(TemporaryError, match="the plugin's answer cannot be sent"):
        await call_over_the_wire(group_returning(method, value), method)


async def test_a_method_that_is_not_a_coroutine_function_is_named() -> None:
    with pytest.raises(TemporaryError, match="write `async def update`"):
        await call_method(InProcess(group_with_method("update", dict)), "update")


async def test_more_than_was_asked_for_is_cut_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert await call_method(InProcess(group_returning("increase", 5)), "increase") == 2
    assert "increase(2) returned 5" in caplog.text


async def test_a_partly_implemented_capability_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Half(PlainGroup):
        async def suspend(self, instances: Sequence[str]) -> Sequence[str]:
            return instances

    assert "suspend_resume" not in (await InProcess(Half()).init({}, Settings())).capabilities
    assert "only in part (suspend without resume)" in caplog.text
    caplog.clear()
    await InProcess(TableGroup()).init({}, Settings())
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("region"), "KeyError: 'region'"),
        (asyncio.CancelledError(), "CancelledError"),
        (SystemExit("cannot go on"), "SystemExit: cannot go on"),
    ],
)
async def test_an_exception_is_reported_with_its_line(error: BaseException, words: str) -> None:
    class Broken(TableGroup):
        async def increase(self, count: int) -> int:
            raise error

    line = Broken.increase.__code__.co_firstlineno + 1
    with pytest.raises(TemporaryError) as caught:
        await call_method(InProcess(Broken()), "increase")
    assert str(caught.value) == f"{words} (test_in_process.py:{line} in increase)"


async def test_cancellation_of_the_caller_is_passed_on() -> None:
    began = asyncio.Event()

    class Slow(TableGroup):
        async def increase(self, count: int) -> int:
            began.set()
            await asyncio.Event().wait()
            return count

    task = asyncio.create_task(call_method(InProcess(Slow()), "increase"), name="increase")
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_old_cancellation_by_a_failed_task_group_is_not_taken_for_a_new_one() -> None:
    async def fail() -> None:
        raise ValueError

    class Cancelling(TableGroup):
        async def increase(self, count: int) -> int:
            raise asyncio.CancelledError

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
    with pytest.raises(TemporaryError, match="CancelledError"):
        await call_method(InProcess(Cancelling()), "increase")
