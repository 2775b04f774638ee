"""`image` and `services` of a job: the container that its own steps run in, and the services beside it.

Pure. Decides what of a job's wishes the runner's configuration allows: images, services, users, pull policies. A wish
that is refused fails the job with its reason. The services come in front, the job's own steps go into the container,
and at the end the services are stopped whatever happened. Everything else of a job (sources, caches, artifacts) is done
on the runner's machine, so what a job says must not run there: its hooks around the checkout have containers, too.

Invariant: no container that has the working directory is open while something of the platform works in it.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from remuda.manager.compile.step_entries import CompileError, Entry, entry, literal
from remuda.manager.compile.variables import Variables
from remuda.manager.config.docker import DEFAULT_HOST, DockerConfig, ServiceConfig
from remuda.manager.config.load import RunnerConfig
from remuda.wire.runner_api import JobPayload

LEASE_MARGIN_SECONDS = 3600
STOP = "stop_services"
INIT_FLAG = "FF_USE_INIT_WITH_DOCKER_EXECUTOR"
_DOCKER_KEYS = ("platform", "user")
_HOOKS = ("pre_get_sources_script", "post_get_sources_script")


def has_containers(runner: RunnerConfig) -> bool:
    """Whether jobs of this runner run in containers."""
    return runner.has_containers


def written_image(payload: JobPayload, runner: RunnerConfig) -> str:
    """The image of a job: its own, or the runner's; variables in it are not expanded yet."""
    return own_image(payload) or runner.docker.image


def own_image(payload: JobPayload) -> str:
    """The image that the job itself asks for; empty: none."""
    return str((payload.image or {}).get("name") or "")


class Containers(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as far as its containers are concerned."""

    payload: JobPayload
    runner: RunnerConfig
    variables: Variables
    configured: Variables
    """For texts of the configuration: predefined names have the values of the server and the runner, where these are
    known, and not the job's."""
    timeout: int
    """Seconds after which the job is over in any case."""
    cgroup: str = ""
    """Around all of the job; empty: none."""

    @property
    def docker(self) -> DockerConfig:
        return self.runner.docker

    @property
    def engine(self) -> str:
        """Always named: a job's own DOCKER_HOST leads to an engine of the job, not to the runner's."""
        return self.docker.host or DEFAULT_HOST

    @property
    def key(self) -> str:
        """Tells the containers of this run of the job from all others."""
        return f"{self.payload.id}-{hashlib.sha256(self.payload.token.encode()).hexdigest()[:16]}"


def around(inner: list[Entry], job: Containers) -> tuple[list[Entry], list[Entry]]:
    """The job's services and its own steps in their container; and what is left to do when everything else is done."""
    services = _services(job)
    work = [*services, _container("container", job, joins=bool(services)) | {"run": inner}]
    stop = entry(STOP, "service_stop", {"engine": job.engine, "job": job.key})
    return work, [stop | {"if": "always()", "continue_on_error": True}] if services else []


def hooks_in_container(entries: list[Entry], job: Containers) -> list[Entry]:
    """Each script around the checkout runs in a container of its own.

    No container is open during the checkout: git runs on the machine with the agent's rights, and who can change the
    repository meanwhile has it run programs. The checkout removes one that an earlier job left there. It uses no login
    of its user: the job chooses where submodules come from.
    """
    return [
        _container(one["name"].removesuffix("_script"), job, joins=False) | {"run": [one]}
        if one["name"] in _HOOKS
        else one | {"inputs": one["inputs"] | _choose_engine(job) | {"isolated": True}}
        for one in entries
    ]


def _choose_engine(job: Containers) -> Entry:
    """The engine for the checkout to ask, unless that may be out of its reach: as the job's user, in its sandbox, in a
    network that a policy limits."""
    own = job.runner.remuda
    is_reachable = job.engine.startswith("unix:") and not (own.run_as or own.first_uid or own.sandbox)
    return {"engine": literal(job.engine)} if is_reachable else {}


def container_remarks(payload: JobPayload, runner: RunnerConfig) -> Iterable[str]:
    """What a job asks of its containers and does not get."""
    if not has_containers(runner):
        if payload.image and payload.image.get("name"):
            yield "image: is ignored; this runner runs jobs on its own machine"
        if payload.services:
            yield "services: is ignored; this runner runs jobs on its own machine"
    elif runner.docker.disable_entrypoint_overwrite and any(
        one.get("entrypoint") for one in (payload.image or {}, *(payload.services or ()))
    ):
        yield "entrypoint: is ignored; this runner keeps the entrypoints of images (disable_entrypoint_overwrite)"


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
            "options": _in_slot(job)
            | docker.job_options()
            | (docker.network_options() if joins else {})
            | ({"init": True} if job.runner.feature_flags.get(INIT_FLAG) else {})
            | ({"privileged": True} if privileged else {}),
        },
    )


def _services(job: Containers) -> list[Entry]:
    docker, variables = job.docker, job.variables
    given = [_configured(one) for one in docker.services]
    wanted = [*given, *(job.payload.services or ())]
    if 0 <= docker.services_limit < len(wanted):
        raise CompileError(f"services: the job has {len(wanted)}, this runner allows {docker.services_limit}")
    entries: list[Entry] = []
    for number, service in enumerate(wanted):
        is_own = number < len(given)
        image = (job.configured if is_own else variables).expand(str(service.get("name") or ""))
        if not image:
            raise CompileError(f"services[{number}]: has no name of an image")
        if docker.allowed_services and not is_own and not _fits_any(image, docker.allowed_services, job.configured):
            raise CompileError(_refusal("services", image, docker.allowed_services))
        entries.append(_service(image, service, job, {one["name"] for one in entries}))
    return entries


def _service(image: str, service: Mapping[str, Any], job: Containers, taken: set[str]) -> Entry:
    docker, variables = job.docker, job.variables
    alias = variables.expand(str(service.get("alias") or ""))
    own = {
        str(one["key"]): str(one["value"]) if one.get("raw") else variables.expand(str(one["value"]))
        for one in service.get("variables") or ()
    }
    wants = docker.privileged if docker.services_privileged is None else docker.services_privileged
    privileged = wants and _may_be_privileged(image, docker.allowed_privileged_services, job.configured)
    devices = [
        device
        for pattern, given in docker.services_devices.items()
        if _fits_any(image, [pattern], job.configured)
        for device in given
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
            "options": _in_slot(job)
            | docker.service_options()
            | ({} if docker.network_mode else docker.network_options())
            | ({"devices": devices} if devices else {})
            | ({"privileged": True} if privileged else {}),
            "wait_seconds": docker.wait_seconds,
        },
    )


def _in_slot(job: Containers) -> dict[str, Any]:
    """The engine puts containers where it is told, and not below those who ask it."""
    return {"cgroup_parent": f"/{job.cgroup}"} if job.cgroup else {}


def _entry(name: str, step: str, inputs: dict[str, Any]) -> Entry:
    """With those inputs that say something."""
    return entry(name, step, {key: value for key, value in inputs.items() if value not in ("", [], {})})


def _common(image: str, wish: Mapping[str, Any], job: Containers) -> dict[str, Any]:
    """What jobs and services ask for in the same words."""
    docker, variables = job.docker, job.variables
    options = wish.get("executor_opts") or {}
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
        "entrypoint": [] if docker.disable_entrypoint_overwrite else _texts(wish.get("entrypoint"), "entrypoint"),
        "user": user,
        "platform": variables.expand(str(own.get("platform") or "")),
        "pull_policy": _policies(wish, docker, variables),
        "auth_config": variables["DOCKER_AUTH_CONFIG"],
        "credentials": [one for one in job.payload.credentials or () if one.get("type") == "registry"],
        "volumes": [_volume(one, job.configured) for one in docker.volumes],
        "min_free_disk": docker.min_free_disk,
        "lease_seconds": job.timeout + LEASE_MARGIN_SECONDS,
    }


def _volume(written: str, variables: Variables) -> str:
    """A volume of the configuration. A job's variable in it names a folder below what is written, and none above."""
    volume = variables.expand(written)
    if volume != written and ".." in volume.partition(":")[0].split("/"):
        raise CompileError(f"volumes: {written}: a variable of this job makes it lead out of its folder ({volume!r})")
    return volume


def _policies(wish: Mapping[str, Any], docker: DockerConfig, variables: Variables) -> list[str]:
    given = wish.get("pull_policy") or ()
    asked = [variables.expand(one) for one in ([given] if isinstance(given, str) else given)]
    allowed = docker.allowed_pull_policies or docker.policies
    for policy in asked:
        if policy not in allowed:
            raise CompileError(_refusal("pull_policy", policy, allowed))
    return asked or list(docker.policies)


def _configured(service: ServiceConfig) -> dict[str, Any]:
    """A service of the configuration, as a job would ask for it."""
    pairs = [text.partition("=") for text in service.environment]
    return {
        "name": service.name,
        "alias": service.alias,
        "entrypoint": list(service.entrypoint),
        "command": list(service.command),
        "variables": [{"key": key, "value": value} for key, _, value in pairs],
    }


def _public(variables: Variables) -> dict[str, str]:
    """What containers themselves are given: nothing secret, since whoever can ask the engine reads it there."""
    return {
        variable.key: variable.value
        for variable in variables.expanded()
        if variable.public and not variable.file and not variable.masked
    }


def _may_be_privileged(name: str, allowed: Sequence[str], variables: Variables) -> bool:
    return not allowed or _fits_any(name, allowed, variables)


def _fits_any(name: str, patterns: Sequence[str], variables: Variables) -> bool:
    return any(_pattern(variables.expand(pattern)).fullmatch(name) for pattern in patterns)


def _pattern(text: str) -> re.Pattern[str]:
    """A glob: `*` and `?` stay inside a part of the name, `**` does not."""
    words = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(words.get(part) or re.escape(part) for part in re.split(r"(\*\*|\*|\?)", text)))


def _refusal(key: str, value: str, allowed: Sequence[str]) -> str:
    return f"{key}: {value} is not allowed on this runner; allowed are {', '.join(allowed)}"


def _texts(value: Any, key: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise CompileError(f"{key}: a list of texts is needed")
    return value


def _step_name(text: str, taken: set[str]) -> str:
    """`service_postgres` for registry.example.com/group/postgres:16."""
    last = re.split(r"[\s,]+", text.strip())[0].rpartition("/")[2]
    base = "service_" + re.sub(r"[^A-Za-z0-9_]", "_", re.split(r"[:@]", last)[0])
    number, name = 1, base
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name
