"""What a changed file changes: at once, after a restart, and which runners come and go."""

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


def test_nothing_has_changed() -> None:
    found = compare(a_config(), a_config())
    assert found.is_empty
    assert found.applied == a_config()


def test_what_applies_at_once() -> None:
    old = a_config(a_runner(limit=2), concurrent=4)
    policy = RemudaConfig(policy={"default": "deny"}, hold_failed="30m")
    new = a_config(
        a_runner(limit=3, remuda=policy, docker=DockerConfig(privileged=True)), concurrent=8, log_level="debug"
    )
    found = compare(old, new)
    assert found.at_once == (
        "concurrent",
        "log_level",
        "runners[one].limit",
        "runners[one].docker.privileged",
        "runners[one].remuda.policy",
        "runners[one].remuda.hold_failed",
    )
    assert (found.restart, found.applied) == ((), new)
    assert found.changed == ((old.runners[0], new.runners[0]),)


def test_what_needs_a_restart_keeps_its_old_value() -> None:
    old = a_config(listen_address=":9252")
    new = a_config(a_runner(limit=1), listen_address=":9253", log_format="json")
    found = compare(old, new)
    assert found.restart == ("listen_address", "log_format")
    assert found.at_once == ("runners[one].limit",)
    assert (found.applied.listen_address, found.applied.log_format) == (":9252", "runner")
    assert found.applied.runners == new.runners
    assert compare(found.applied, old).restart == ()


def test_of_an_autoscaler_policies_and_limits_apply_at_once() -> None:
    old = a_config(a_runner(autoscaler=AutoscalerConfig(plugin="aws", max_instances=3)))
    wanted = AutoscalerConfig(plugin="gcp", max_instances=9, policy=(AutoscalerPolicy(idle_count=2),))
    found = compare(old, a_config(a_runner(autoscaler=wanted)))
    assert found.restart == ("runners[one].autoscaler.plugin",)
    assert found.at_once == ("runners[one].autoscaler.max_instances", "runners[one].autoscaler.policy")
    assert found.applied.runners[0].autoscaler == msgspec.structs.replace(wanted, plugin="aws")


def test_of_a_fallback_chain_limits_apply_at_once() -> None:
    def with_fallback(**values: object) -> ManagerConfig:
        group = msgspec.structs.replace(FallbackConfig(plugin="spare"), **values)
        return a_config(a_runner(remuda=RemudaConfig(fallback=(group,))))

    found = compare(with_fallback(), with_fallback(max_instances=4))
    assert (found.restart, found.at_once) == ((), ("runners[one].remuda.fallback",))
    found = compare(with_fallback(), with_fallback(plugin="other"))
    assert (found.restart, found.at_once) == (("runners[one].remuda.fallback",), ())
    assert found.applied == with_fallback()


def test_runners_come_and_go() -> None:
    old, new = a_config(a_runner("one"), a_runner("two")), a_config(a_runner("two"), a_runner("three"))
    found = compare(old, new)
    assert [runner.name for runner in found.added] == ["three"]
    assert [runner.name for runner in found.removed] == ["one"]
    assert (found.changed, found.is_empty) == ((), False)


def test_a_new_token_is_another_runner() -> None:
    found = compare(a_config(a_runner()), a_config(a_runner(token="glrt-new")))
    assert ([len(found.added), len(found.removed)], found.changed) == ([1, 1], ())
