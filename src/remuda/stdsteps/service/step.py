"""The step `service`: starts a service container in the job's network, with host names for the job. Waits until the
service is ready. As in GitLab, if it does not become ready, the step prints a warning with its log, and the job goes
on. If the image cannot be pulled or the container cannot be started, the step fails."""

import time
from typing import Any

from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import write_outputs
from remuda.stdsteps.container.logs import read_log, show
from remuda.stdsteps.container.open import (
    JOB_NETWORK,
    LEASE_SECONDS,
    START_SECONDS,
    create,
    engine_address,
    read_policy_limits,
)
from remuda.stdsteps.container.options import host_config, mounts
from remuda.stdsteps.engine import images, job_containers
from remuda.stdsteps.engine.docker_api import Engine, EngineRefusedError
from remuda.stdsteps.engine.images import Image
from remuda.stdsteps.engine.job_containers import MARK, SERVICE_ROLE, this_owner
from remuda.stdsteps.service import health as service_health
from remuda.stdsteps.service.names import aliases, ports, short_name

WAIT_SECONDS = 30
SHOWN_LINES = 200
WITHOUT_NAMES = ("host", "none", "bridge", "default")
"""Networks in which containers have no host names for each other."""


def run(inputs: Inputs) -> None:
    image_request = images.read_request(inputs)
    engine = Engine(engine_address(inputs))
    owner = this_owner(inputs.text("job", ""))
    names = aliases(image_request.name, inputs.texts("alias", []))
    entrypoint, command = inputs.texts("entrypoint", []), inputs.texts("command", [])
    variables, user = inputs.mapping("variables"), inputs.text("user", "")
    binds, inner = mounts(inputs.texts("volumes", []))
    options, network_input = inputs.mapping("options"), inputs.text("network", JOB_NETWORK) or JOB_NETWORK
    wait_seconds = inputs.number("wait_seconds", WAIT_SECONDS)
    until = time.time() + (inputs.number("lease_seconds", LEASE_SECONDS) or LEASE_SECONDS)
    inputs.done()

    job_containers.sweep(engine, owner)
    image = images.obtain(engine, image_request)
    network = (
        job_containers.make_network(engine, owner, until=until, options=options)
        if network_input == JOB_NETWORK
        else network_input
    )
    name = owner.name(
        f"service-{short_name(names)}-{job_containers.short_digest(repr((image_request.name, names, variables)))}"
    )
    body: dict[str, Any] = {
        "Image": image_request.name,
        "Env": [*(f"{key}={value}" for key, value in variables.items()), f"{MARK}={name}"],
        "User": user,
        "Labels": owner.labels(role=SERVICE_ROLE, until=until) | {"remuda.service": names[0] if names else name},
        "Volumes": inner,
        "HostConfig": {"NetworkMode": network, "Binds": binds} | host_config(options, read_policy_limits()),
    }
    if entrypoint:
        body["Entrypoint"] = [] if entrypoint == [""] else entrypoint
    if command:
        body["Cmd"] = command
    network = body["HostConfig"]["NetworkMode"]
    if network not in WITHOUT_NAMES and not network.startswith("container:"):
        body["NetworkingConfig"] = {"EndpointsConfig": {network: {"Aliases": names}}}
    started = time.monotonic()
    job_containers.remove(engine, name)
    container, image = _start(engine, image_request, image, name, body)
    say(f"Started the service {image_request.name} as {', '.join(names) or name}")
    health = service_health.wait_for(engine, container, ports(image.config, variables), seconds=wait_seconds)
    seconds = time.monotonic() - started
    if health.problem:
        say(f"WARNING: the service {image_request.name} probably did not start properly: {health.problem}")
        show(f"Log of the service {names[0] if names else name}:", read_log(engine, container, lines=SHOWN_LINES))
    else:
        say(f"The service {names[0] if names else name} is ready after {seconds:.1f} s (checked: {health.checked})")
    write_outputs(
        container=container,
        image=image_request.name,
        aliases=names,
        healthy=not health.problem,
        problem=health.problem,
        checked=health.checked,
        start_seconds=round(seconds, 3),
        **image.facts(),
    )


def _start(
    engine: Engine, request: images.ImageRequest, image: Image, name: str, body: dict[str, Any]
) -> tuple[str, Image]:
    try:
        container = create(engine, name, body, request.platform)
    except EngineRefusedError as error:
        if error.status != 404:
            raise
        image = images.obtain(engine, request)  # another job may have removed it to free disk space
        container = create(engine, name, body, request.platform)
    try:
        engine.call("POST", f"/containers/{container}/start", seconds=START_SECONDS)
    except EngineRefusedError as error:
        job_containers.remove(engine, container)
        kind = PlatformError if error.status >= 500 else StepError
        raise kind(f"cannot start the service {request.name}: {error}") from None
    return container, image
