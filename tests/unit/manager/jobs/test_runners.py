"""Who ends a job that an earlier process took."""

import msgspec
import pytest
from tests.support.manager_values import a_row

from remuda.lib.clock import VirtualClock
from remuda.manager.config.values import RunnerConfig
from remuda.manager.core.record import JobRow
from remuda.manager.jobs.runners import ClientFactory, RunnerLookup
from remuda.manager.metrics.metrics import ManagerMetrics
from remuda.wire.runner_server import new_session


def row_of(runner: str, url: str, settings: str = "") -> JobRow:
    return a_row(runner=runner, runner_name=f"the {runner}", url=url, settings=settings)


@pytest.fixture
def runners() -> RunnerLookup:
    metrics = ManagerMetrics(lambda: ())
    return RunnerLookup(
        ClientFactory(system_id="s_1", session=new_session(), clock=VirtualClock(), metrics=metrics),
        served=lambda: (),
        concurrent=lambda: 4,
    )


def test_runners_that_are_gone_are_not_taken_for_each_other(runners: RunnerLookup) -> None:
    rows = [row_of("one", "http://one"), row_of("two", "http://two"), row_of("one", "http://two")]
    found = [runners.find(row, None) for row in rows]
    assert [client.url for _, client in found] == ["http://one", "http://two", "http://two"]
    assert [config.name for config, _ in found] == ["the one", "the two", "the one"]


def test_a_runner_that_is_gone_is_as_it_was(runners: RunnerLookup) -> None:
    was = RunnerConfig(name="old", url="http://one", token="glrt-one", executor="docker")
    row = row_of("one", "http://one", settings="abc")
    config, client = runners.find(row, msgspec.json.encode(was))
    assert config == was
    assert runners.find(row, None) == (config, client)


def test_settings_of_another_form_are_as_good_as_none(runners: RunnerLookup) -> None:
    row = row_of("one", "http://one", settings="abc")
    config, client = runners.find(row, b'{"limit": {"of": "another form"}}')
    assert (config.name, client.url) == ("the one", "http://one")
    assert runners.is_placeholder(config)


def test_what_is_made_up_for_a_runner_is_not_one_that_somebody_wrote(runners: RunnerLookup) -> None:
    made_up, _ = runners.find(row_of("one", "http://one"), None)
    was = RunnerConfig(name=made_up.name, url=made_up.url, token=made_up.token, executor="shell")
    known, _ = runners.find(row_of("one", "http://one", "abc"), msgspec.json.encode(was))
    assert known == made_up
    assert not runners.is_placeholder(known)
    assert runners.is_placeholder(made_up)
