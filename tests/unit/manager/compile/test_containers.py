"""Compilation of `image` and `services`, and the settings of the runner that restrict them."""

import json
from typing import Any

import pytest
from tests.support.manager_values import a_payload, a_runner_config, a_setting

from remuda.manager.compile.compile import compile_job, job_warnings
from remuda.manager.compile.containers import runner_of_job
from remuda.manager.compile.step_entries import CompileError
from remuda.manager.config.docker import DockerConfig, ServiceConfig
from remuda.manager.config.values import BY_JOB, RemudaConfig
from remuda.steps.job_tree.tree import confines_own_steps, is_confined
from remuda.steps.language.reading import read_step
from remuda.wire.agent_client import JobStart

ENGINE = "unix:///var/run/docker.sock"


def compile_payload(
    docker: DockerConfig | None = None, *, runner: dict[str, Any] | None = None, **changes: Any
) -> JobStart:
    config = a_runner_config(**{"executor": "docker"} | (runner or {}), docker=docker or DockerConfig())
    payload: dict[str, Any] = {
        "image": {"name": "alpine:3"},
        "steps": [{"name": "script", "script": ["make"]}, {"name": "after_script", "script": ["bye"]}],
        "runner_info": {"timeout": 600},
    }
    return compile_job(a_payload(**payload | changes), a_setting(config, cgroup=config.slot_cgroup(2)))


def steps_of(job: JobStart) -> list[dict[str, Any]]:
    read_step(job.steps, job=True)  # the agent can read it
    steps: list[dict[str, Any]] = json.loads(job.steps.split("\n---\n")[1])["run"]
    return steps


def step(job: JobStart, name: str) -> dict[str, Any]:
    [match] = [entry for entry in steps_of(job) if entry["name"] == name]
    return match


def variable(key: str, value: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "value": value, "public": True} | more


def test_the_jobs_own_steps_go_into_the_container() -> None:
    checkout, container = steps_of(compile_payload())
    assert checkout["name"] == "get_sources"
    assert container["step"] == "builtin://container"
    assert [(entry["name"], entry["origin"]) for entry in container["run"]] == [
        ("step_script", "user"),
        ("after_script", "user"),
    ]
    assert container["run"][1]["if"] == "always()"
    inputs = container["inputs"]
    assert (inputs["image"], inputs["engine"], inputs["pull_policy"]) == ("alpine:3", ENGINE, ["always"])
    assert inputs["lease_seconds"] == 600 + 3600
    assert inputs["job"].startswith("5-")
    assert "network" not in inputs


@pytest.mark.parametrize(
    ("executor", "confining"),
    [
        ("docker", ["container"]),
        ("docker-autoscaler", ["container"]),
        ("docker+machine", ["container"]),
        ("shell", []),
        ("ssh", []),
        ("instance", []),
    ],
)
@pytest.mark.parametrize("run", ["", '[{"name": "own", "script": "make"}]'], ids=["script", "run"])
def test_the_agent_can_tell_whether_a_jobs_steps_are_confined(executor: str, confining: list[str], run: str) -> None:
    """The agent refuses a shell on the machine if they are."""
    hooks = [{"name": "pre_get_sources_script", "script": ["true"]}]
    job_step = read_step(compile_payload(runner={"executor": executor}, hooks=hooks, run=run).steps, job=True)
    calls = job_step.definition.run
    assert is_confined(job_step) == bool(confining)
    assert [call.name for call in calls if confines_own_steps(call)] == confining
    assert any(call.origin == "user" for call in calls) == (not confining)


def test_services_run_during_the_job_in_its_network() -> None:
    services = [
        {"name": "registry.example.com/group/postgres:16", "alias": "db", "command": ["-c", "x"], "entrypoint": ["e"]},
        {"name": "redis:7", "variables": [{"key": "MODE", "value": "$KIND-1"}]},
        {"name": "redis:6"},
    ]
    artifacts = [{"paths": ["out"]}]
    job = compile_payload(services=services, artifacts=artifacts, variables=[variable("KIND", "fast")])
    assert [entry["name"] for entry in steps_of(job)] == [
        "get_sources",
        "service_db",
        "service_redis",
        "service_redis_2",
        "container",
        "upload_artifacts",
        "stop_services",
    ]
    first, second = step(job, "service_db")["inputs"], step(job, "service_redis")["inputs"]
    assert (first["alias"], first["command"], first["entrypoint"]) == (["db"], ["-c", "x"], ["e"])
    assert second["variables"] == {"KIND": "fast", "MODE": "fast-1"}
    assert first["wait_seconds"] == 30
    assert step(job, "container")["inputs"]["network"] == "job"
    stop = step(job, "stop_services")
    assert (stop["if"], stop["continue_on_error"]) == ("always()", True)
    assert stop["inputs"]["job"] == first["job"] == step(job, "container")["inputs"]["job"]


def test_the_runners_image_is_for_jobs_without_one_and_variables_are_expanded() -> None:
    docker = DockerConfig(image="debian:$VERSION")
    job = compile_payload(docker, image=None, variables=[variable("VERSION", "12")])
    assert step(job, "container")["inputs"]["image"] == "debian:12"
    assert {variable.key: variable.value for variable in job.variables}["CI_JOB_IMAGE"] == "debian:12"
    with pytest.raises(CompileError, match="the job names none"):
        compile_payload(image=None)


def test_image_options_of_the_job() -> None:
    image = {"name": "a", "entrypoint": [""], "executor_opts": {"docker": {"platform": "linux/arm64", "user": "app"}}}
    inputs = step(compile_payload(image=image), "container")["inputs"]
    assert (inputs["entrypoint"], inputs["platform"], inputs["user"]) == ([""], "linux/arm64", "app")
    with pytest.raises(CompileError, match="docker: volumes: this runner knows platform and user only"):
        compile_payload(image={"name": "a", "executor_opts": {"docker": {"volumes": ["/:/x"]}}})
    job = compile_payload(DockerConfig(disable_entrypoint_overwrite=True), image=image)
    assert "entrypoint" not in step(job, "container")["inputs"]
    assert any("entrypoint: is ignored" in line for line in job.banner)
    assert step(compile_payload(DockerConfig(user="1000"), image=image), "container")["inputs"]["user"] == "1000"


@pytest.mark.parametrize(
    ("docker", "changes", "words"),
    [
        (
            {"allowed_images": ("ruby:*", "my.example:5000/*/*")},
            {"image": {"name": "my.example:5000/a/b/c"}},
            "image: my",
        ),
        ({"allowed_images": ("ruby:*",)}, {"image": {"name": "x/ruby:3"}}, "x/ruby:3 is not allowed"),
        ({"allowed_services": ("redis:*",)}, {"services": [{"name": "mysql"}]}, "services: mysql is not allowed"),
        ({"allowed_users": ("app",)}, {"image": {"name": "a", "executor_opts": {"docker": {"user": "root"}}}}, "root"),
        ({}, {"image": {"name": "a", "pull_policy": ["never"]}}, "pull_policy: never is not allowed"),
        ({"services_limit": 1}, {"services": [{"name": "a"}, {"name": "b"}]}, "has 2, this runner allows 1"),
        ({}, {"services": [{"alias": "x"}]}, "has no name"),
    ],
)
def test_settings_the_runner_forbids_fail_the_job(docker: dict[str, Any], changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CompileError, match=words):
        compile_payload(DockerConfig(**docker), **changes)


def test_settings_that_the_runner_allows() -> None:
    docker = DockerConfig(
        image="own:1",
        allowed_images=("my.example/**", "ruby:*"),
        allowed_pull_policies=("never", "always"),
        services=(ServiceConfig(name="cache:1", environment=("A=1",)),),
        allowed_services=("none",),
        privileged=True,
        allowed_privileged_images=("my.example/dind",),
        memory="1g",
        service_memory="64m",
        volumes=("/cache",),
        network_mode="host",
        hostname="builder",
    )
    for name in ("my.example/a/b/c:1", "ruby:3", "own:1"):
        compile_payload(docker, image={"name": name})
    job = compile_payload(docker, image={"name": "my.example/dind", "pull_policy": ["never", "always"]})
    inputs = step(job, "container")["inputs"]
    assert inputs["pull_policy"] == ["never", "always"]
    assert inputs["options"] == {"memory": "1g", "privileged": True}
    assert (inputs["network"], inputs["hostname"], inputs["volumes"]) == ("host", "builder", ["/cache"])
    service = step(job, "service_cache")["inputs"]
    assert service["options"] == {"memory": "64m", "privileged": True}
    assert service["variables"] == {"A": "1"}
    assert "privileged" not in step(compile_payload(docker, image={"name": "ruby:3"}), "container")["inputs"]["options"]


def test_a_variable_in_a_volume_leads_nowhere_above_it() -> None:
    docker = DockerConfig(volumes=("/caches/$WHERE:/cache", "/odd/../place:/place"))
    job = compile_payload(docker, variables=[variable("WHERE", "team/one")])
    assert step(job, "container")["inputs"]["volumes"] == ["/caches/team/one:/cache", "/odd/../place:/place"]
    with pytest.raises(CompileError, match="lead out of its folder"):
        compile_payload(docker, variables=[variable("WHERE", "../etc")])


def test_a_job_does_not_choose_predefined_variables_in_the_configuration() -> None:
    """`$CI_PROJECT_PATH` is the job's project, even if the job sets another path or a pattern that matches all."""
    docker = DockerConfig(
        image="base/$CI_PROJECT_PATH:1",
        volumes=("/caches/$CI_PROJECT_PATH:/cache",),
        allowed_images=("registry/$CI_PROJECT_PATH/*",),
        allowed_privileged_images=("registry/$CI_PROJECT_PATH/dind",),
        privileged=True,
    )
    forged = [variable("CI_PROJECT_PATH", "**")]
    inputs = step(compile_payload(docker, image={"name": "registry/g/p/x"}, variables=forged), "container")["inputs"]
    assert inputs["volumes"] == ["/caches/g/p:/cache"]
    assert not inputs.get("options", {}).get("privileged")
    for name in ("registry/other/x", "base/**:1"):
        with pytest.raises(CompileError, match="is not allowed on this runner"):
            compile_payload(docker, image={"name": name}, variables=forged)
    assert step(compile_payload(docker, image=None, variables=forged), "container")["inputs"]["image"] == "base/g/p:1"


def test_an_invented_predefined_variable_is_empty_in_the_configuration() -> None:
    """A pipeline of a branch has no tag, even if the job sets one. `CI_TEAM` is a variable of the project."""
    docker = DockerConfig(volumes=("/caches/of$CI_COMMIT_TAG-$CI_TEAM:/cache",))
    variables = [variable("CI_COMMIT_TAG", "-others"), variable("CI_TEAM", "a")]
    job = compile_payload(docker, variables=variables, remuda={"predefined": {"CI_COMMIT_TAG": None, "CI_TEAM": None}})
    assert step(job, "container")["inputs"]["volumes"] == ["/caches/of-a:/cache"]


def test_containers_get_no_secret_variables() -> None:
    variables = [
        variable("OPEN", "1"),
        variable("SECRET", "s3cret", public=False),
        variable("MASKED", "m4sked", masked=True),
        variable("FILE", "content", file=True),
    ]
    credentials = [
        {"type": "registry", "url": "r.example", "username": "u", "password": "p4ss"},
        {"type": "other", "url": "x"},
    ]
    job = compile_payload(variables=variables, services=[{"name": "a"}], credentials=credentials)
    for name in ("container", "service_a"):
        assert step(job, name)["inputs"]["variables"] == {"OPEN": "1"}
        assert step(job, name)["inputs"]["credentials"] == credentials[:1]
    assert "p4ss" in job.masks


def test_inputs_have_the_runners_engine_and_the_jobs_logins() -> None:
    variables = [
        variable("DOCKER_HOST", "tcp://docker:2375"),
        variable("DOCKER_AUTH_CONFIG", '{"auths": {}}', file=True, public=False),
    ]
    inputs = step(compile_payload(variables=variables), "container")["inputs"]
    assert (inputs["engine"], inputs["auth_config"]) == (ENGINE, '{"auths": {}}')


def test_each_hook_of_the_job_runs_in_a_container_that_is_closed_during_the_checkout() -> None:
    hooks = [{"name": f"{when}_get_sources_script", "script": ["id"]} for when in ("pre", "post")]
    before, checkout, after, container = steps_of(compile_payload(hooks=hooks))
    assert (before["name"], before["step"]) == ("pre_get_sources", "builtin://container")
    assert [entry["name"] for entry in before["run"]] == ["pre_get_sources_script"]
    assert (checkout["name"], checkout["step"]) == ("get_sources", "builtin://checkout")
    assert (after["name"], after["step"]) == ("post_get_sources", "builtin://container")
    assert [entry["name"] for entry in after["run"]] == ["post_get_sources_script"]
    assert container["name"] == "container"


@pytest.mark.parametrize(
    ("docker", "own", "expected"),
    [
        (DockerConfig(), {}, ENGINE),
        (DockerConfig(host="unix:///run/podman.sock"), {}, "unix:///run/podman.sock"),
        (DockerConfig(host="tcp://127.0.0.1:2375"), {}, None),
        (DockerConfig(), {"first_uid": 200000}, None),
        (DockerConfig(), {"run_as": "ci"}, None),
        (DockerConfig(), {"sandbox": True}, None),
    ],
)
def test_checkout_has_an_engine_it_can_reach(docker: DockerConfig, own: dict[str, Any], expected: str | None) -> None:
    job = compile_payload(docker, runner={"remuda": RemudaConfig(**own)})
    assert step(job, "get_sources")["inputs"].get("engine") == expected


def test_the_cell_is_told_which_image_and_services_are_ignored() -> None:
    payload = a_payload(image={"name": "alpine:3"}, services=[{"name": "redis:7"}])
    shell = a_runner_config(executor="shell")
    assert job_warnings(payload, shell) == ("image alpine:3 ignored", "service redis:7 not started")
    several = a_payload(services=[{"name": "redis"}, {"name": "db"}])
    assert job_warnings(several, shell) == ("services redis, db not started",)
    assert job_warnings(a_payload(), shell) == ()
    for executor in ("docker", "custom"):
        assert job_warnings(payload, a_runner_config(executor=executor)) == ()


@pytest.mark.parametrize("own", [{}, {"run_as": "ci"}, {"first_uid": 200000}])
def test_the_checkout_for_a_container_uses_no_login_of_its_user(own: dict[str, Any]) -> None:
    job = compile_payload(runner={"remuda": RemudaConfig(**own)})
    assert step(job, "get_sources")["inputs"]["isolated"] is True
    job = compile_payload(runner={"executor": "shell", "remuda": RemudaConfig(**own)})
    assert "isolated" not in step(job, "get_sources")["inputs"]


def test_without_containers_image_and_services_are_ignored_with_a_warning() -> None:
    job = compile_payload(runner={"executor": "shell"}, services=[{"name": "redis"}])
    assert [entry["name"] for entry in steps_of(job)] == ["get_sources", "step_script", "after_script"]
    assert [line for line in job.banner if "own machine" in line] == [
        "WARNING: image: alpine:3 is ignored; this runner runs the job on its own machine, with the programs there",
        "WARNING: services: redis: not started; this runner runs the job on its own machine",
    ]


@pytest.mark.parametrize(
    ("fields", "executor"),
    [
        ({}, "docker"),
        ({"image": None, "services": [{"name": "redis"}]}, "docker"),
        ({"image": None}, "shell"),
        ({"image": {}}, "shell"),
    ],
)
def test_a_job_decides_by_its_image_and_services_whether_it_runs_in_a_container(
    fields: dict[str, Any], executor: str
) -> None:
    runner = a_runner_config(executor="shell", remuda=RemudaConfig(containers=BY_JOB))
    payload = a_payload(**{"image": {"name": "alpine:3"}} | fields)
    assert runner_of_job(payload, runner).executor == executor
    for other in (a_runner_config(executor="shell"), a_runner_config(executor="docker")):
        assert runner_of_job(payload, other) is other


def test_network_options_of_the_runner() -> None:
    docker = DockerConfig(network_mtu=1400, enable_ipv6=True)
    job = compile_payload(docker, services=[{"name": "redis:7"}])
    for name in ("service_redis", "container"):
        assert step(job, name)["inputs"]["options"] == {"network_mtu": 1400, "enable_ipv6": True}
    assert "options" not in step(compile_payload(docker), "container")["inputs"]
    elsewhere = compile_payload(DockerConfig(network_mtu=1400, network_mode="mine"), services=[{"name": "redis:7"}])
    assert "options" not in step(elsewhere, "service_redis")["inputs"]


def test_devices_of_services_depend_on_their_image() -> None:
    docker = DockerConfig(services_devices={"registry.example/emulator:*": ("/dev/kvm",), "other": ("/dev/null",)})
    job = compile_payload(docker, services=[{"name": "registry.example/emulator:34"}, {"name": "redis:7"}])
    assert step(job, "service_emulator")["inputs"]["options"] == {"devices": ["/dev/kvm"]}
    assert "options" not in step(job, "service_redis")["inputs"]


def test_a_feature_flag_enables_the_engines_init() -> None:
    flags = {"feature_flags": {"FF_USE_INIT_WITH_DOCKER_EXECUTOR": True}}
    assert step(compile_payload(runner=flags), "container")["inputs"]["options"] == {"init": True}


@pytest.mark.parametrize("executor", ["docker-autoscaler", "docker+machine"])
def test_steps_do_not_depend_on_the_container_executor(executor: str) -> None:
    assert steps_of(compile_payload(runner={"executor": executor})) == steps_of(compile_payload())


def test_containers_of_a_slot_are_in_its_control_group() -> None:
    own = {"use_slot_cgroups": True}
    job = compile_payload(runner=own, services=[{"name": "redis:7"}])
    for name in ("service_redis", "container"):
        assert step(job, name)["inputs"]["options"] == {"cgroup_parent": "/gitlab-runner/slot-2"}
    named = compile_payload(DockerConfig(cgroup_parent="/ci"), runner=own)
    assert step(named, "container")["inputs"]["options"] == {"cgroup_parent": "/ci"}
