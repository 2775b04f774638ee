"""Who ends a job that an earlier process took."""

import msgspec
import pytest

from remuda.lib.clock import VirtualClock
from remuda.manager.config.load import RunnerConfig
from remuda.manager.jobs.journal import JobRow
from remuda.manager.metrics.metrics import ManagerMetrics
from remuda.manager.process.runners import Clients, Takers
from remuda.wire.runner_server import new_session


def a_row(runner: str, url: str, settings: str = "") -> JobRow:
    return JobRow(
        key=f"7-{runner}",
        job_id=7,
        url=url,
        runner=runner,
        runner_name=f"the {runner}",
        slot=0,
        sends_results=True,
        received_at=12.5,
        api_version=1,
        payload=b"{}",
        settings=settings,
    )


@pytest.fixture
def takers() -> Takers:
    metrics = ManagerMetrics(lambda: ())
    return Takers(Clients(system_id="s_1", session=new_session(), clock=VirtualClock(), metrics=metrics))


def test_runners_that_are_gone_are_not_taken_for_each_other(takers: Takers) -> None:
    rows = [a_row("one", "http://one"), a_row("two", "http://two"), a_row("one", "http://two")]
    found = [takers.of(row, None, served=(), concurrent=4) for row in rows]
    assert [client.url for _, client in found] == ["http://one", "http://two", "http://two"]
    assert [config.name for config, _ in found] == ["the one", "the two", "the one"]


def test_a_runner_that_is_gone_is_as_it_was(takers: Takers) -> None:
    was = RunnerConfig(name="old", url="http://one", token="glrt-one", executor="docker")
    row = a_row("one", "http://one", settings="abc")
    config, client = takers.of(row, msgspec.json.encode(was), served=(), concurrent=4)
    assert config == was
    assert takers.of(row, None, served=(), concurrent=4) == (config, client)


def test_settings_of_another_form_are_as_good_as_none(takers: Takers) -> None:
    row = a_row("one", "http://one", settings="abc")
    config, client = takers.of(row, b'{"limit": {"of": "another form"}}', served=(), concurrent=4)
    assert (config.name, client.url) == ("the one", "http://one")
    assert not takers.knows(config)


def test_what_is_made_up_for_a_runner_is_not_one_that_somebody_wrote(takers: Takers) -> None:
    made_up, _ = takers.of(a_row("one", "http://one"), None, served=(), concurrent=4)
    was = RunnerConfig(name=made_up.name, url=made_up.url, token=made_up.token, executor="shell")
    known, _ = takers.of(a_row("one", "http://one", "abc"), msgspec.json.encode(was), served=(), concurrent=4)
    assert known == made_up
    assert takers.knows(known)
    assert not takers.knows(made_up)
