"""Configurations as gitlab-runner's users have them: each is read as it should be, with the right words."""

from pathlib import Path

import pytest

from remuda.manager.config.autoscaler import as_autoscaler
from remuda.manager.config.load import inspect
from remuda.manager.config.values import Inspection, ManagerConfig

FOLDER = Path(__file__).parents[3] / "data" / "gitlab-runner"

SAID: dict[str, list[str]] = {
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
"""What is warned about in each; nothing where the list is empty."""
REFUSED = {
    "kubernetes.toml": "config.toml:7: runners[0].executor: 'kubernetes' is not supported",
    "sixty-keys.toml": "tls_cert_path",
}


def inspected(name: str) -> Inspection:
    return inspect((FOLDER / name).read_text(), file="config.toml", environment={})


def loaded(name: str) -> ManagerConfig:
    config = inspected(name).config
    assert config is not None
    return config


def test_there_is_a_word_for_every_file() -> None:
    assert sorted(SAID) == sorted(file.name for file in FOLDER.glob("*.toml"))


@pytest.mark.parametrize("name", SAID)
def test_a_file_is_read_with_the_right_words(name: str) -> None:
    found = inspected(name)
    problems = [one.in_file("config.toml") for one in found.problems]
    assert bool(problems) == (name in REFUSED), problems
    assert name not in REFUSED or any(REFUSED[name] in one for one in problems), problems
    warnings = [one.text for one in found.warnings]
    assert all(any(words in one for one in warnings) for words in SAID[name]), warnings
    assert SAID[name] or not warnings, warnings
    assert all(one.line for one in (*found.problems, *found.warnings))


def test_what_the_sections_say_is_there() -> None:
    custom = loaded("custom-driver.toml").runners[0].custom
    assert (custom.run_exec, custom.config_args, custom.config_seconds) == ("/opt/driver/run.sh", ("--zone", "a"), 60)
    assert (custom.graceful_seconds, custom.force_seconds) == (30, 20)
    ssh = loaded("ssh.toml").runners[0].ssh
    assert (ssh.host, int(ssh.port), ssh.user) == ("box.example.net", 2222, "ci")
    docker = loaded("docker-services.toml").runners[0].docker
    assert docker.job_options()["log_options"] == {"max-size": "10m", "env": "CI_JOB_ID"}
    assert [service.alias for service in docker.services] == ["db", ""]
    durations = loaded("monitored.toml").runners[0].monitoring.job_queuing_durations
    assert (durations[0].threshold_seconds, durations[0].jobs_running_for_project) == (300, "^0$")


def test_listed_machines_have_what_the_autoscaler_says_of_all() -> None:
    one, two = loaded("instance-static.toml").runners[0].remuda.machines
    assert (one.user, one.identity_file, one.capacity, one.use_count) == (
        "ec2-user",
        "/etc/gitlab-runner/mac-key",
        2,
        50,
    )
    assert (two.name, two.capacity) == ("10.20.0.12", 1)
    [legacy] = loaded("docker-machine.toml").runners[0].remuda.machines
    assert (legacy.user, legacy.capacity, legacy.use_count) == ("docker", 1, 20)


def test_docker_machine_in_the_newer_words() -> None:
    runner = loaded("docker-machine.toml").runners[0]
    made = as_autoscaler(runner.machine, limit=runner.limit)
    assert (made.max_use_count, made.max_instances, made.capacity_per_instance) == (20, 30, 1)
    assert made.plugin_config["machine_name"] == "ci-%s"
    usual, daytime = made.policy
    assert (usual.idle_count, usual.scale_factor, usual.scale_factor_limit, usual.idle_time) == (2, 0.3, 5, "1200s")
    assert (daytime.periods, daytime.timezone, daytime.idle_count) == (("* * 8-17 * * mon-fri *",), "Europe/Berlin", 20)
