"""Starts a service beside the job: a container in the job's network, under the names that the job knows it by.

The step waits until the service can be used. One that does not come up is a warning with its log, and the job goes on,
as GitLab does it; one whose image cannot be had or whose container cannot be started ends the job. It runs on when the
step has ended; `service_stop` shows its log and removes it.
"""

import time
from typing import Any

from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import tell
from remuda.stdsteps.container.logs import log_of, show
from remuda.stdsteps.container.open import (
    JOB_NETWORK,
    LEASE_SECONDS,
    START_SECONDS,
    create,
    engine_address,
    policy_limits,
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
"""Networks in which nobody has a name."""


def run(inputs: Inputs) -> None:
    image_wish = images.read_wish(inputs)
    engine = Engine(engine_address(inputs))
    owner = this_owner(inputs.text("job", ""))
    names = aliases(image_wish.name, inputs.texts("alias", []))
    entrypoint, command = inputs.texts("entrypoint", []), inputs.texts("command", [])
    variables, user = inputs.mapping("variables"), inputs.text("user", "")
    binds, inner = mounts(inputs.texts("volumes", []))
    options, wanted_network = inputs.mapping("options"), inputs.text("network", JOB_NETWORK) or JOB_NETWORK
    wait_seconds = inputs.number("wait_seconds", WAIT_SECONDS)
    until = time.time() + (inputs.number("lease_seconds", LEASE_SECONDS) or LEASE_SECONDS)
    inputs.done()

    job_containers.sweep(engine, owner)
    image = images.obtain(engine, image_wish)
    network = (
        job_containers.make_network(engine, owner, until=until, options=options)
        if wanted_network == JOB_NETWORK
        else wanted_network
    )
    name = owner.name(
        f"service-{short_name(names)}-{job_containers.part_of(repr((image_wish.name, names, variables)))}"
    )
    body: dict[str, Any] = {
        "Image": image_wish.name,
        "Env": [*(f"{key}={value}" for key, value in variables.items()), f"{MARK}={name}"],
        "User": user,
        "Labels": owner.labels(role=SERVICE_ROLE, until=until) | {"remuda.service": names[0] if names else name},
        "Volumes": inner,
        "HostConfig": {"NetworkMode": network, "Binds": binds} | host_config(options, policy_limits()),
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
    container, image = _start(engine, image_wish, image, name, body)
    say(f"The service {image_wish.name} is started as {', '.join(names) or name}")
    health = service_health.wait_for(engine, container, ports(image.config, variables), seconds=wait_seconds)
    seconds = time.monotonic() - started
    if health.problem:
        say(f"WARNING: the service {image_wish.name} probably did not start properly: {health.problem}")
        show(f"Log of the service {names[0] if names else name}:", log_of(engine, container, lines=SHOWN_LINES))
    else:
        say(f"The service {names[0] if names else name} is ready after {seconds:.1f} s (looked at: {health.checked})")
    tell(
        container=container,
        image=image_wish.name,
        aliases=names,
        healthy=not health.problem,
        problem=health.problem,
        checked=health.checked,
        start_seconds=round(seconds, 3),
        **image.facts(),
    )


def _start(engine: Engine, wish: images.Wish, image: Image, name: str, body: dict[str, Any]) -> tuple[str, Image]:
    try:
        container = create(engine, name, body, wish.platform)
    except EngineRefusedError as error:
        if error.status != 404:
            raise
        image = images.obtain(engine, wish)  # somebody made room on the disk between the pull and now
        container = create(engine, name, body, wish.platform)
    try:
        engine.call("POST", f"/containers/{container}/start", seconds=START_SECONDS)
    except EngineRefusedError as error:
        job_containers.remove(engine, container)
        kind = PlatformError if error.status >= 500 else StepError
        raise kind(f"the service {wish.name} cannot be started: {error}") from None
    return container, image
