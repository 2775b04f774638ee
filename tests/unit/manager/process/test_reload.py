"""Comparison of two configurations: values that apply at once or need a restart, and runners added or removed."""

import msgspec

from remuda.manager.config.autoscaler import AutoscalerConfig, AutoscalerPolicy, FallbackConfig
from remuda.manager.config.docker import DockerConfig
from remuda.manager.config.values import ManagerConfig, RemudaConfig, RunnerConfig
from remuda.manager.process.reload import compare


def a_runner(name: str = "one", **values: object) -> RunnerConfig:
    runner = RunnerConfig(name=name, url="https://cell.example", token=f"glrt-{name}", executor="shell")
    return msgspec.structs.replace(runner, **values)


def a_config(*runners: RunnerConfig, **values: object) -> ManagerConfig:
    return msgspec.structs.replace(ManagerConfig(runners=runners or (a_runner(),)), **values)


def test_equal_configurations() -> None:
    changes = compare(a_config(), a_config())
    assert changes.is_empty
    assert changes.applied == a_config()


def test_values_that_apply_at_once() -> None:
    old = a_config(a_runner(limit=2), concurrent=4)
    policy = RemudaConfig(policy={"default": "deny"}, hold_failed="30m")
    new = a_config(
        a_runner(limit=3, remuda=policy, docker=DockerConfig(privileged=True)), concurrent=8, log_level="debug"
    )
    changes = compare(old, new)
    assert changes.at_once == (
        "concurrent",
        "log_level",
        "runners[one].limit",
        "runners[one].docker.privileged",
        "runners[one].remuda.policy",
        "runners[one].remuda.hold_failed",
    )
    assert (changes.restart, changes.applied) == ((), new)
    assert changes.changed == ((old.runners[0], new.runners[0]),)


def test_values_that_need_a_restart_stay_unchanged() -> None:
    old = a_config(listen_address=":9252")
    new = a_config(a_runner(limit=1), listen_address=":9253", log_format="json")
    changes = compare(old, new)
    assert changes.restart == ("listen_address", "log_format")
    assert changes.at_once == ("runners[one].limit",)
    assert (changes.applied.listen_address, changes.applied.log_format) == (":9252", "runner")
    assert changes.applied.runners == new.runners
    assert compare(changes.applied, old).restart == ()


def test_policies_and_limits_of_an_autoscaler_apply_at_once() -> None:
    old = a_config(a_runner(autoscaler=AutoscalerConfig(plugin="aws", max_instances=3)))
    new = AutoscalerConfig(plugin="gcp", max_instances=9, policy=(AutoscalerPolicy(idle_count=2),))
    changes = compare(old, a_config(a_runner(autoscaler=new)))
    assert changes.restart == ("runners[one].autoscaler.plugin",)
    assert changes.at_once == ("runners[one].autoscaler.max_instances", "runners[one].autoscaler.policy")
    assert changes.applied.runners[0].autoscaler == msgspec.structs.replace(new, plugin="aws")


def test_limits_of_a_fallback_chain_apply_at_once() -> None:
    def with_fallback(**values: object) -> ManagerConfig:
        group = msgspec.structs.replace(FallbackConfig(plugin="spare"), **values)
        return a_config(a_runner(remuda=RemudaConfig(fallback=(group,))))

    changes = compare(with_fallback(), with_fallback(max_instances=4))
    assert (changes.restart, changes.at_once) == ((), ("runners[one].remuda.fallback",))
    changes = compare(with_fallback(), with_fallback(plugin="other"))
    assert (changes.restart, changes.at_once) == (("runners[one].remuda.fallback",), ())
    assert changes.applied == with_fallback()


def test_added_and_removed_runners() -> None:
    old, new = a_config(a_runner("one"), a_runner("two")), a_config(a_runner("two"), a_runner("three"))
    changes = compare(old, new)
    assert [runner.name for runner in changes.added] == ["three"]
    assert [runner.name for runner in changes.removed] == ["one"]
    assert (changes.changed, changes.is_empty) == ((), False)


def test_a_new_token_is_another_runner() -> None:
    changes = compare(a_config(a_runner()), a_config(a_runner(token="glrt-new")))
    assert ([len(changes.added), len(changes.removed)], changes.changed) == ([1, 1], ())
