"""Typical configuration files of gitlab-runner: values, warnings and problems of each."""

from pathlib import Path

import pytest

from remuda.manager.config.autoscaler import as_autoscaler
from remuda.manager.config.load import inspect
from remuda.manager.config.values import Inspection, ManagerConfig

FOLDER = Path(__file__).parents[3] / "data" / "gitlab-runner"

WARNINGS: dict[str, list[str]] = {
    "cache-gcs.toml": ["runners[0].cache.Type is not supported: gcs is not supported", "cache.gcs.CredentialsFile"],
    "cache-s3.toml": [],
    "custom-driver.toml": [],
    "docker-autoscaler.toml": [],
    "docker-basic.toml": ["docker.disable_cache"],
    "docker-in-docker.toml": [],
    "docker-locked-down.toml": [],
    "docker-machine.toml": ["machine is not supported", "runners[0].machine.MachineDriver is not used"],
    "docker-services.toml": [],
    "instance-static.toml": ["instance.allowed_images", "runners[0].autoscaler.plugin is not used"],
    "kubernetes.toml": [],
    "monitored.toml": ["sentry_dsn", "experimental is not supported"],
    "shell-single.toml": ["session_server is not supported"],
    "shell-two-servers.toml": [],
    "sixty-keys.toml": ["conncurrency is unknown"],
    "ssh.toml": [],
}
"""Expected parts of the warnings for each file. An empty list: the file has no warnings."""
REFUSED = {
    "kubernetes.toml": "config.toml:7: runners[0].executor: 'kubernetes' is not supported",
    "sixty-keys.toml": "tls_cert_path",
}


def inspect_file(name: str) -> Inspection:
    return inspect((FOLDER / name).read_text(), file="config.toml", environment={})


def load_file(name: str) -> ManagerConfig:
    config = inspect_file(name).config
    assert config is not None
    return config


def test_every_file_has_its_expected_warnings() -> None:
    assert sorted(WARNINGS) == sorted(file.name for file in FOLDER.glob("*.toml"))


@pytest.mark.parametrize("name", WARNINGS)
def test_problems_and_warnings_of_a_file(name: str) -> None:
    inspection = inspect_file(name)
    problems = [problem.in_file("config.toml") for problem in inspection.problems]
    assert bool(problems) == (name in REFUSED), problems
    assert name not in REFUSED or any(REFUSED[name] in problem for problem in problems), problems
    warnings = [warning.text for warning in inspection.warnings]
    assert all(any(part in warning for warning in warnings) for part in WARNINGS[name]), warnings
    assert WARNINGS[name] or not warnings, warnings
    assert all(message.line for message in (*inspection.problems, *inspection.warnings))


def test_values_of_sections() -> None:
    custom = load_file("custom-driver.toml").runners[0].custom
    assert (custom.run_exec, custom.config_args, custom.config_seconds) == ("/opt/driver/run.sh", ("--zone", "a"), 60)
    assert (custom.graceful_seconds, custom.force_seconds) == (30, 20)
    ssh = load_file("ssh.toml").runners[0].ssh
    assert (ssh.host, int(ssh.port), ssh.user) == ("box.example.net", 2222, "ci")
    docker = load_file("docker-services.toml").runners[0].docker
    assert docker.job_options()["log_options"] == {"max-size": "10m", "env": "CI_JOB_ID"}
    assert [service.alias for service in docker.services] == ["db", ""]
    durations = load_file("monitored.toml").runners[0].monitoring.job_queuing_durations
    assert (durations[0].threshold_seconds, durations[0].jobs_running_for_project) == (300, "^0$")


def test_listed_machines_inherit_values_of_the_autoscaler() -> None:
    first, second = load_file("instance-static.toml").runners[0].remuda.machines
    assert (first.user, first.identity_file, first.capacity, first.use_count) == (
        "ec2-user",
        "/etc/gitlab-runner/mac-key",
        2,
        50,
    )
    assert (second.name, second.capacity) == ("10.20.0.12", 1)
    [legacy] = load_file("docker-machine.toml").runners[0].remuda.machines
    assert (legacy.user, legacy.capacity, legacy.use_count) == ("docker", 1, 20)


def test_docker_machine_converted_to_autoscaler_settings() -> None:
    runner = load_file("docker-machine.toml").runners[0]
    autoscaler = as_autoscaler(runner.machine, limit=runner.limit)
    assert (autoscaler.max_use_count, autoscaler.max_instances, autoscaler.capacity_per_instance) == (20, 30, 1)
    assert autoscaler.plugin_config["machine_name"] == "ci-%s"
    default_policy, daytime = autoscaler.policy
    assert (
        default_policy.idle_count,
        default_policy.scale_factor,
        default_policy.scale_factor_limit,
        default_policy.idle_time,
    ) == (2, 0.3, 5, "1200s")
    assert (daytime.periods, daytime.timezone, daytime.idle_count) == (("* * 8-17 * * mon-fri *",), "Europe/Berlin", 20)
