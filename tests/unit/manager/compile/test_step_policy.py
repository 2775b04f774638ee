"""The step policies of runner and cell in the message to the agent, and the users that steps run as."""

import json
from typing import Any

import msgspec
import pytest
from tests.support.manager_values import a_payload, a_setting

from remuda.manager.compile.step_entries import CompileError
from remuda.manager.compile.step_policy import has_own_user, policy_text, run_as
from remuda.manager.config.load import parse
from remuda.manager.config.ssh import MachineEntry
from remuda.manager.config.values import Loaded, RemudaConfig, RunnerConfig
from remuda.manager.errors import ConfigError
from remuda.steps.policy.document import parse_policy
from remuda.wire.runner_api import JobPayload

RUNNER = '[[runners]]\nname = "one"\nurl = "https://gitlab.example.com/"\ntoken = "glrt-{}"\nexecutor = "shell"\n'


def read(*own: str, concurrent: int = 1) -> Loaded:
    runners = [f"{RUNNER.format(index)}[runners.remuda]\n{text}\n" for index, text in enumerate(own)]
    return parse(f"concurrent = {concurrent}\n" + "".join(runners), file="config.toml", environment={})


def policy_layers(**documents: dict[str, Any]) -> dict[str, Any]:
    layers = [{"scope": scope, "id": 5, "version": 3, "document": document} for scope, document in documents.items()]
    return {"step_policy": {"version": 1, "layers": layers}}


def read_policy(payload: JobPayload, runner: RunnerConfig | None = None) -> str:
    return policy_text(payload, a_setting(runner or RunnerConfig()), dict)


def test_there_is_no_policy_by_default() -> None:
    assert read_policy(a_payload()) == ""


def test_layers_of_runner_and_cell() -> None:
    runner = RunnerConfig(name="one", remuda=RemudaConfig(policy={"default": "deny"}))
    text = read_policy(a_payload(remuda=policy_layers(organization={}, project={"limits": {"pids": 5}})), runner)
    assert [layer.author for layer in parse_policy(text).layers] == ["runner one", "organization 5", "project 5"]
    assert json.loads(text)["version"] == 1


def test_variables_are_sent_only_with_inserted_steps() -> None:
    """Only inserted steps use them, so other messages stay small."""
    insert = {"insert": [{"name": "scan", "script": "true", "after": "job"}]}
    assert "variables" not in json.loads(read_policy(a_payload(remuda=policy_layers(project={}))))
    policy = parse_policy(read_policy(a_payload(remuda=policy_layers(project=insert))))
    assert (policy.variables["CI_JOB_ID"], policy.variables["CI_JOB_TOKEN"]) == ("5", "glcbt-job-token")
    assert "CI_COMMIT_TAG" not in policy.variables


@pytest.mark.parametrize(
    ("remuda", "message"),
    [
        (
            policy_layers(project={"defualt": "deny"}),
            "policy of project 5: defualt: unknown key; did you mean default?",
        ),
        ({"step_policy": {"version": 2, "layers": []}}, "use a newer runner"),
        ({"step_policy": []}, "use a newer runner"),
    ],
)
def test_an_unreadable_policy_fails_the_job(remuda: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message.replace("?", r"\?")):
        read_policy(a_payload(remuda=remuda))


def test_a_policy_in_the_configuration() -> None:
    text = (
        'run_as = "builder"\n[runners.remuda.policy]\ndefault = "deny"\n'
        '[[runners.remuda.policy.rules]]\nallow = "builtin"\n[runners.remuda.policy.limits]\nmemory = "1g"\n'
    )
    [runner] = read(text).config.runners
    assert parse_policy(read_policy(a_payload(), runner)).layers[0].limits.memory_bytes == 2**30
    assert run_as(runner, 3) == "builder"


def test_every_slot_has_its_own_user() -> None:
    [runner] = read("first_uid = 200000").config.runners
    assert [run_as(runner, slot) for slot in (0, 3)] == ["200000", "200003"]


def test_only_machines_of_instance_groups_have_an_own_user() -> None:
    [runner] = read("first_uid = 200000").config.runners
    with_machines = msgspec.structs.replace(runner, executor="instance")
    assert [has_own_user(config) for config in (runner, with_machines)] == [False, True]
    listed = msgspec.structs.replace(runner.remuda, machines=(MachineEntry(host="a"),))
    assert not has_own_user(msgspec.structs.replace(with_machines, remuda=listed))
    assert not has_own_user(msgspec.structs.replace(with_machines, remuda=RemudaConfig(run_as="ci")))


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ('run_az = "x"', r"config.toml:8: runners\[0\].remuda.run_az: unknown; did you mean run_as\?"),
        ('run_as = "x"\nfirst_uid = 5000', "run_as and first_uid exclude each other"),
        ("first_uid = 33", "first_uid: 33 is below 1000"),
        ('slot_memory = "1x"', "remuda.slot_memory: '1x' is not a size"),
        ('slot_memory = "1m"', "remuda.slot_memory: '1m' is too little for any job; give 16m or more"),
        ("slot_cpus = -1", "remuda.slot_cpus: -1.0 is too little for any job; give 0.01 or more"),
        ("slot_pids = 3", "remuda.slot_pids: 3 is too little for any job; give 10 or more"),
        (
            'policy = {default = "dney"}',
            r"runners\[0\].remuda.policy: policy of runner one: default: 'dney' is not one of",
        ),
    ],
)
def test_errors_name_their_key(own: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(own)


def test_runners_do_not_share_users() -> None:
    read("first_uid = 5000", "first_uid = 5004", concurrent=4)
    with pytest.raises(ConfigError, match=r"runners\[1\].remuda.first_uid: 5003 is in use .* give 5004 or more"):
        read("first_uid = 5000", "first_uid = 5003", concurrent=4)
