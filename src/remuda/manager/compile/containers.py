"""Compiles `image` and `services` of a job: the container for its own steps, and the service containers. Pure code.

The runner's own steps (checkout, caches, artifacts) run outside of containers. No command of the job may run there, so
the job's hooks around the checkout run in containers, too. Invariant: no container that mounts the working directory
runs while the runner's own steps work in that directory."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from remuda.manager.compile.step_entries import CompileError, Entry, entry, literal
from remuda.manager.compile.variables import Variables
from remuda.manager.config.docker import DEFAULT_HOST, DockerConfig, ServiceConfig
from remuda.manager.config.values import BY_JOB, RunnerConfig
from remuda.manager.core.record import job_key
from remuda.wire.runner_api import JobPayload

LEASE_MARGIN_SECONDS = 3600
STOP = "stop_services"
INIT_FLAG = "FF_USE_INIT_WITH_DOCKER_EXECUTOR"
_DOCKER_KEYS = ("platform", "user")
_HOOKS = ("pre_get_sources_script", "post_get_sources_script")


def image_of(payload: JobPayload, runner: RunnerConfig) -> str:
    """Return the payload's image or else the runner's default. Variables in it are not expanded."""
    return own_image(payload) or runner.docker.image


def own_image(payload: JobPayload) -> str:
    return str((payload.image or {}).get("name") or "")


def runner_of_job(payload: JobPayload, runner: RunnerConfig) -> RunnerConfig:
    """Return the runner as it holds for this job: with the executor `docker` if the runner's jobs run in containers by
    their `image` and `services`, and this job names any."""
    if runner.remuda.containers != BY_JOB or not (own_image(payload) or payload.services):
        return runner
    return msgspec.structs.replace(runner, executor="docker")


class Containers(msgspec.Struct, frozen=True, kw_only=True):
    payload: JobPayload
    runner: RunnerConfig
    variables: Variables
    configured: Variables
    """Variables for texts of the configuration: predefined names have trusted values, not the job's."""
    timeout: int
    """The job's timeout in seconds."""
    cgroup: str = ""
    """Control group of the job; empty: none."""

    @property
    def docker(self) -> DockerConfig:
        return self.runner.docker

    @property
    def engine(self) -> str:
        """Address of the container engine; given to every step, because a job's DOCKER_HOST may name another engine."""
        return self.docker.host or DEFAULT_HOST

    @property
    def key(self) -> str:
        """Label of all containers of this job, to find and remove them. It differs if the job is assigned again."""
        return job_key(self.payload.id, self.payload.token)


def wrap_in_container(inner: list[Entry], job: Containers) -> tuple[list[Entry], list[Entry]]:
    """Return the steps that start services and run `inner` in the job's container, and those that stop the services."""
    services = _services(job)
    work = [*services, _container("container", job, joins=bool(services)) | {"run": inner}]
    stop = entry(STOP, "service_stop", {"engine": job.engine, "job": job.key})
    return work, [stop | {"if": "always()", "continue_on_error": True}] if services else []


def hooks_in_container(entries: list[Entry], job: Containers) -> list[Entry]:
    """Return the steps of `get_sources` (`entries`) with each hook around the checkout in its own container. No
    container runs during the checkout: git runs with the agent's rights, and a process that changes the repository
    meanwhile could make git run programs. The checkout step cannot use the agent user's credentials, because the job
    chooses the addresses of submodules."""
    return [
        _container(step["name"].removesuffix("_script"), job, joins=False) | {"run": [step]}
        if step["name"] in _HOOKS
        else step | {"inputs": step["inputs"] | _engine_input(job) | {"isolated": True}}
        for step in entries
    ]


def _engine_input(job: Containers) -> Entry:
    """Return the input `engine` of the checkout step: the address of the container engine. With it the step removes
    containers of earlier jobs that still mount the working directory. Empty if the step may be unable to reach the
    engine (TCP, other user, sandbox)."""
    own = job.runner.remuda
    is_reachable = job.engine.startswith("unix:") and not (own.run_as or own.first_uid or own.sandbox)
    return {"engine": literal(job.engine)} if is_reachable else {}


def container_remarks(payload: JobPayload, runner: RunnerConfig) -> Iterable[str]:
    if not runner.has_containers:
        if image := own_image(payload):
            yield f"image: {image} is ignored; this runner runs the job on its own machine, with the programs there"
        if names := ", ".join(str(service.get("name") or "?") for service in payload.services or ()):
            yield f"services: {names}: not started; this runner runs the job on its own machine"
    elif runner.docker.disable_entrypoint_overwrite and any(
        request.get("entrypoint") for request in (payload.image or {}, *(payload.services or ()))
    ):
        yield "entrypoint: is ignored; this runner keeps the entrypoints of images (disable_entrypoint_overwrite)"


def ignored_containers(payload: JobPayload, runner: RunnerConfig) -> Iterable[str]:
    """Yield in few words which image and services of the payload the runner ignores."""
    if runner.has_containers:
        return
    if image := own_image(payload):
        yield f"image {image} ignored"
    if services := [str(service.get("name") or "?") for service in payload.services or ()]:
        yield f"service{'s' if len(services) > 1 else ''} {', '.join(services)} not started"


def _container(name: str, job: Containers, *, joins: bool) -> Entry:
    docker, variables = job.docker, job.variables
    default = job.configured.expand(docker.image)
    image = variables.expand(asked) if (asked := own_image(job.payload)) else default
    if not image:
        raise CompileError("image: the job names none, and the runner has none for such jobs ([runners.docker] image)")
    is_own = image == default
    if docker.allowed_images and not is_own and not _fits_any(image, docker.allowed_images, job.configured):
        raise CompileError(_refusal("image", image, docker.allowed_images))
    privileged = docker.privileged and _may_be_privileged(image, docker.allowed_privileged_images, job.configured)
    return _entry(
        name,
        "container",
        _common(image, job.payload.image or {}, job)
        | {
            "variables": _public(variables),
            "network": docker.network_mode or ("job" if joins else ""),
            "hostname": docker.hostname,
            "labels": {key: job.configured.expand(value) for key, value in docker.container_labels.items()},
            "options": _cgroup_option(job)
            | docker.job_options()
            | (docker.network_options() if joins else {})
            | ({"init": True} if job.runner.feature_flags.get(INIT_FLAG) else {})
            | ({"privileged": True} if privileged else {}),
        },
    )


def _services(job: Containers) -> list[Entry]:
    docker, variables = job.docker, job.variables
    configured = [_service_request(service) for service in docker.services]
    services = [*configured, *(job.payload.services or ())]
    if 0 <= docker.services_limit < len(services):
        raise CompileError(f"services: the job has {len(services)}, this runner allows {docker.services_limit}")
    entries: list[Entry] = []
    for number, service in enumerate(services):
        is_own = number < len(configured)
        image = (job.configured if is_own else variables).expand(str(service.get("name") or ""))
        if not image:
            raise CompileError(f"services[{number}]: has no name of an image")
        if docker.allowed_services and not is_own and not _fits_any(image, docker.allowed_services, job.configured):
            raise CompileError(_refusal("services", image, docker.allowed_services))
        entries.append(_service(image, service, job, {step["name"] for step in entries}))
    return entries


def _service(image: str, service: Mapping[str, Any], job: Containers, taken: set[str]) -> Entry:
    docker, variables = job.docker, job.variables
    alias = variables.expand(str(service.get("alias") or ""))
    own = {
        str(item["key"]): str(item["value"]) if item.get("raw") else variables.expand(str(item["value"]))
        for item in service.get("variables") or ()
    }
    wants = docker.privileged if docker.services_privileged is None else docker.services_privileged
    privileged = wants and _may_be_privileged(image, docker.allowed_privileged_services, job.configured)
    devices = [
        device
        for pattern, names in docker.services_devices.items()
        if _fits_any(image, [pattern], job.configured)
        for device in names
    ]
    return _entry(
        _step_name(alias or image, taken),
        "service",
        _common(image, service, job)
        | {
            "alias": [alias] if alias else [],
            "command": _texts(service.get("command"), "services:command"),
            "variables": _public(variables) | own,
            "network": docker.network_mode,
            "options": _cgroup_option(job)
            | docker.service_options()
            | ({} if docker.network_mode else docker.network_options())
            | ({"devices": devices} if devices else {})
            | ({"privileged": True} if privileged else {}),
            "wait_seconds": docker.wait_seconds,
        },
    )


def _cgroup_option(job: Containers) -> dict[str, Any]:
    """Return the engine's option that puts a container into the job's control group, because the engine starts it
    outside of the group; empty if the job has no group."""
    return {"cgroup_parent": f"/{job.cgroup}"} if job.cgroup else {}


def _entry(name: str, step: str, inputs: dict[str, Any]) -> Entry:
    return entry(name, step, {key: value for key, value in inputs.items() if value not in ("", [], {})})


def _common(image: str, request: Mapping[str, Any], job: Containers) -> dict[str, Any]:
    """Return the step inputs that job and service containers have in common. `request` is the payload's `image` or an
    entry of its `services`. Raises CompileError if the runner does not allow a value."""
    docker, variables = job.docker, job.variables
    options = request.get("executor_opts") or {}
    own = (options.get("docker") if isinstance(options, Mapping) else None) or {}
    unknown = [key for key in own if key not in _DOCKER_KEYS]
    if unknown:
        raise CompileError(f"docker: {', '.join(unknown)}: this runner knows {' and '.join(_DOCKER_KEYS)} only")
    user = docker.user or variables.expand(str(own.get("user") or ""))
    if docker.allowed_users and user and not docker.user and user not in docker.allowed_users:
        raise CompileError(_refusal("docker:user", user, docker.allowed_users))
    return {
        "image": image,
        "engine": job.engine,
        "job": job.key,
        "entrypoint": [] if docker.disable_entrypoint_overwrite else _texts(request.get("entrypoint"), "entrypoint"),
        "user": user,
        "platform": variables.expand(str(own.get("platform") or "")),
        "pull_policy": _policies(request, docker, variables),
        "auth_config": variables["DOCKER_AUTH_CONFIG"],
        "credentials": [login for login in job.payload.credentials or () if login.get("type") == "registry"],
        "volumes": [_volume(volume, job.configured) for volume in docker.volumes],
        "min_free_disk": docker.min_free_disk,
        "lease_seconds": job.timeout + LEASE_MARGIN_SECONDS,
    }


def _volume(written: str, variables: Variables) -> str:
    """Expand variables in a configured volume. Raises CompileError if one adds `..`, a way to another folder."""
    volume = variables.expand(written)
    if volume != written and ".." in volume.partition(":")[0].split("/"):
        raise CompileError(f"volumes: {written}: a variable of this job makes it lead out of its folder ({volume!r})")
    return volume


def _policies(request: Mapping[str, Any], docker: DockerConfig, variables: Variables) -> list[str]:
    value = request.get("pull_policy") or ()
    policies = [variables.expand(policy) for policy in ([value] if isinstance(value, str) else value)]
    allowed = docker.allowed_pull_policies or docker.policies
    for policy in policies:
        if policy not in allowed:
            raise CompileError(_refusal("pull_policy", policy, allowed))
    return policies or list(docker.policies)


def _service_request(service: ServiceConfig) -> dict[str, Any]:
    pairs = [text.partition("=") for text in service.environment]
    return {
        "name": service.name,
        "alias": service.alias,
        "entrypoint": list(service.entrypoint),
        "command": list(service.command),
        "variables": [{"key": key, "value": value} for key, _, value in pairs],
    }


def _public(variables: Variables) -> dict[str, str]:
    """Return only public variables, because all clients of the engine can read a container's environment."""
    return {
        variable.key: variable.value
        for variable in variables.expand_all()
        if variable.public and not variable.file and not variable.masked
    }


def _may_be_privileged(name: str, allowed: Sequence[str], variables: Variables) -> bool:
    return not allowed or _fits_any(name, allowed, variables)


def _fits_any(name: str, patterns: Sequence[str], variables: Variables) -> bool:
    return any(_pattern(variables.expand(pattern)).fullmatch(name) for pattern in patterns)


def _pattern(text: str) -> re.Pattern[str]:
    """Convert a glob for image names to a regular expression. `*` and `?` do not match a slash, `**` does."""
    words = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(words.get(part) or re.escape(part) for part in re.split(r"(\*\*|\*|\?)", text)))


def _refusal(key: str, value: str, allowed: Sequence[str]) -> str:
    return f"{key}: {value} is not allowed on this runner; allowed are {', '.join(allowed)}"


def _texts(value: Any, key: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CompileError(f"{key}: a list of texts is needed")
    return value


def _step_name(text: str, taken: set[str]) -> str:
    """Return an unused step name for a service: `service_postgres` for registry.example.com/group/postgres:16."""
    last = re.split(r"[\s,]+", text.strip())[0].rpartition("/")[2]
    base = "service_" + re.sub(r"[^A-Za-z0-9_]", "_", re.split(r"[:@]", last)[0])
    number, name = 1, base
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name
