"""The scaler's setup that follows from a runner's configuration."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from remuda.manager.config.autoscaler import AutoscalerConfig, ConnectorConfig
from remuda.manager.config.fleet_setup import fleet_setup, group_names, owner_of, plugins_of, runner_key
from remuda.manager.config.load import inspect
from remuda.manager.config.values import RunnerConfig
from remuda.manager.errors import ConfigError

HEAD = '[[runners]]\nname = "builder"\nurl = "https://x.y"\ntoken = "glrt-abcdefghijk"\n'
AWS = HEAD + 'executor = "instance"\n[runners.autoscaler]\nplugin = "fleeting-plugin-aws"\n'
MACHINE = (
    HEAD + 'limit = 30\nexecutor = "docker+machine"\n[runners.machine]\nMachineDriver = "amazonec2"\n'
    'MachineName = "ci-%s"\nMachineOptions = ["a=b"]\nMaxBuilds = 20\nMaxGrowthRate = 4\n'
    "IdleCount = 5\nIdleTime = 1200\n"
)


def read(text: str) -> RunnerConfig:
    inspection = inspect(text, file="config.toml", environment={})
    if inspection.problems:
        raise ConfigError(inspection.problems[0].in_file("config.toml"))
    assert inspection.config is not None
    return inspection.config.runners[0]


def test_defaults_are_those_of_gitlab_runner() -> None:
    setup = fleet_setup(read(AWS), system_id="s_1")
    [group] = setup.groups
    assert (setup.acquire_seconds, setup.update_seconds, setup.expecting_seconds) == (900, 60, 2)
    assert (group.limits.capacity, group.limits.max_instances, group.limits.failure_threshold) == (1, 0, 3)
    assert (group.settings.connector.keepalive_seconds, group.settings.connector.timeout_seconds) == (30, 600)
    assert (setup.rules, setup.delete_on_shutdown) == ((), False)


def test_configured_values(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"PRIVATE")
    runner = read(
        f'{AWS}max_instances = 9\ncapacity_per_instance = 3\nmax_use_count = 7\ninstance_acquire_timeout = "2m"\n'
        f'[runners.autoscaler.plugin_config]\nname = "asg"\n[runners.autoscaler.scale_throttle]\nlimit = -1\n'
        f'[runners.autoscaler.connector_config]\nusername = "ci"\nkey_path = "{tmp_path}/key"\nprotocol_port = 2222\n'
        "use_external_addr = true\n"
        '[[runners.autoscaler.policy]]\nidle_count = 2\n[[runners.autoscaler.policy]]\nidle_time = "0s"\n'
    )
    setup = fleet_setup(runner, system_id="s_1")
    [group] = setup.groups
    assert (group.name, group.config, group.use_external_addr) == ("aws", {"name": "asg"}, True)
    assert (group.limits.max_instances, group.limits.capacity, group.limits.max_use_count) == (9, 3, 7)
    assert (group.limits.throttle_limit, setup.acquire_seconds) == (-1, 120)
    login = group.settings.connector
    assert (login.username, login.key, login.port) == ("ci", b"PRIVATE", 2222)
    assert [(rule.idle_count, rule.idle_seconds) for rule in setup.rules] == [(2, None), (0, 0.0)]


def test_docker_machine_becomes_a_plugin() -> None:
    runner = read(MACHINE)
    [group] = fleet_setup(runner, system_id="s_1").groups
    assert plugins_of(runner) == {"docker-machine": "docker-machine"}
    assert group.config == {
        "machine_driver": "amazonec2",
        "machine_name": "ci-%s",
        "machine_options": ["a=b"],
        "machine_options_with_name": [],
    }
    assert (group.limits.max_instances, group.limits.max_use_count, group.limits.max_creating) == (30, 20, 4)
    [rule] = fleet_setup(runner, system_id="s_1").rules
    assert (rule.idle_count, rule.idle_seconds, rule.is_machine) == (5, 1200.0, True)


def test_a_fallback_chain() -> None:
    runner = read(
        f'{AWS}capacity_per_instance = 2\nmax_instances = 4\n[runners.autoscaler.connector_config]\nusername = "ci"\n'
        '[[runners.remuda.fallback]]\nplugin = "aws"\nmax_instances = 1\nplugin_config = {name = "b"}\n'
        '[[runners.remuda.fallback]]\nplugin = "/opt/fleeting-plugin-own"\nname = "last"\ncapacity_per_instance = 1\n'
        '[runners.remuda.fallback.connector_config]\nusername = "root"\n'
    )
    assert group_names(runner) == ("aws", "aws-2", "last")
    groups = fleet_setup(runner, system_id="s_1").groups
    assert [group.limits.max_instances for group in groups] == [4, 1, 0]
    assert [group.limits.capacity for group in groups] == [2, 2, 1]
    assert [group.settings.connector.username for group in groups] == ["ci", "ci", "root"]
    assert groups[1].config == {"name": "b"}


def test_the_key_of_a_runner_does_not_depend_on_its_token() -> None:
    without_token, with_token = (
        RunnerConfig(name="a b/c", url="https://x.y/"),
        RunnerConfig(name="a b/c", url="https://x.y", token="t"),
    )
    assert runner_key(without_token) == runner_key(with_token)
    assert owner_of(without_token, "s_1").startswith("s_1/a-b-c-")
    assert runner_key(RunnerConfig(name="x", id=3, url="https://x.y")).startswith("3-")
    assert runner_key(RunnerConfig(url="https://x.y", token="glrt-abcdefghijk")).startswith("abcdefghi-")


def test_an_unreadable_key_file_is_an_error() -> None:
    """The check of the file finds it, and so does the setup if the key file is removed after the check."""
    text = "connector_config.key_path: /no/such/key cannot be read: No such file"
    with pytest.raises(ConfigError, match=rf"config.toml:9: runners\[0\].autoscaler.{text}"):
        read(AWS + '[runners.autoscaler.connector_config]\nkey_path = "/no/such/key"\n')
    scaling = AutoscalerConfig(plugin="aws", connector_config=ConnectorConfig(key_path="/no/such/key"))
    with pytest.raises(ConfigError, match=text):
        fleet_setup(RunnerConfig(executor="instance", autoscaler=scaling), system_id="s_1")


def test_the_example_of_the_guide_is_valid() -> None:
    page = (Path(__file__).parents[4] / "docs/how-to/autoscaling.md").read_text()
    example = page.partition("```toml\n")[2].partition("```")[0]
    parsed: dict[str, Any] = tomllib.loads(example)
    assert parsed["runners"][0]["autoscaler"]["plugin"] == "aws"
    inspection = inspect(example, file="config.toml", environment={})
    assert (inspection.problems, inspection.warnings) == ((), ())
