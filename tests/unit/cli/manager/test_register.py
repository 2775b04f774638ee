"""The options of `remuda manager register` become keys of the runner's section in config.toml."""

import pytest

from remuda.cli.main import call
from remuda.cli.manager.register import SectionOptions, parse_assignments
from remuda.lib.exits import BadInputError


def test_options_are_keys_of_their_sections() -> None:
    options = SectionOptions(
        limit=2,
        env=("A=1", "B=2"),
        tls_ca_file="/ca.pem",
        docker_image="alpine",
        docker_volumes=("/cache",),
        ssh_identity_file="/key",
        custom_run_exec="/run",
    )
    assert options.values() == {
        "limit": 2,
        "environment": ["A=1", "B=2"],
        "tls-ca-file": "/ca.pem",
        "docker": {"image": "alpine", "volumes": ["/cache"]},
        "ssh": {"identity_file": "/key"},
        "custom": {"run_exec": "/run"},
    }


def test_any_key_can_be_set() -> None:
    assignments = (
        "docker.memory=2g",
        "docker.privileged=true",
        "limit = 3",
        'labels={zone="a"}',
        "environment=['A=1']",
    )
    assert parse_assignments(assignments) == {
        "docker": {"memory": "2g", "privileged": True},
        "limit": 3,
        "labels": {"zone": "a"},
        "environment": ["A=1"],
    }
    with pytest.raises(BadInputError, match="KEY=VALUE"):
        parse_assignments(("docker.memory",))


def test_registration_without_a_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI_SERVER_TOKEN", raising=False)
    with pytest.raises(BadInputError, match="--token is empty"):
        call(["manager", "register", "--url", "http://127.0.0.1:1", "--config", "none.toml"])
