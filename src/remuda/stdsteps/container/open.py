"""The step `container_open`: pulls an image and starts the container in which a step's inner steps run. The container
runs an idle command under the image's entrypoint. The job's working directory and exchange folder (scripts, inputs and
outputs of steps) are mounted at the same paths as outside, so paths in variables are valid inside, too. So are, but
read-only, the folders in REMUDA_PACKAGES, into which the agent puts the packages of steps that run in the container.

The container is ready when its entrypoint has run the idle command, which prints a line; or has read it from stdin,
where this step writes it as well, because an entrypoint such as `sh -c` drops arguments; or when the container still
runs after `entrypoint_patience_seconds`. If it ends before that, its output and exit code are reported; with exit code
0, the image's entrypoint does not run commands, and the container is started again without the entrypoint. The idle
command exits when the job's time is over, and the engine removes a container that ends."""

import json
import os
import re
import time
from contextlib import closing
from typing import Any

from remuda.lib.dataclass import dataclass
from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import write_outputs
from remuda.stdsteps.container.file_access import share
from remuda.stdsteps.container.options import host_config, mounts
from remuda.stdsteps.engine import images, job_containers
from remuda.stdsteps.engine.docker_api import DEFAULT_HOST, Engine, EngineRefusedError, Stream
from remuda.stdsteps.engine.docker_exec import run_inside
from remuda.stdsteps.engine.images import Image
from remuda.stdsteps.engine.job_containers import JOB_ROLE, MARK, WORK_DIR, Owner, this_owner

READY = "remuda-container-is-ready"
JOB_NETWORK = "job"
LEASE_SECONDS = 24 * 3600
PATIENCE_SECONDS = 10
"""Default time for an entrypoint to run the idle command."""
START_SECONDS = 120.0
LARGEST_LOG_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    image: images.ImageRequest
    engine: str
    job: str
    entrypoint: list[str]
    user: str
    variables: dict[str, Any]
    volumes: list[str]
    network: str
    hostname: str
    labels: dict[str, Any]
    options: dict[str, Any]
    lease_seconds: int
    patience_seconds: int


def read_request(inputs: Inputs) -> Request:
    """Parse and check the inputs. Raises StepError if one is invalid or unknown."""
    request = Request(
        image=images.read_request(inputs),
        engine=engine_address(inputs),
        job=inputs.text("job", ""),
        entrypoint=inputs.texts("entrypoint", []),
        user=inputs.text("user", ""),
        variables=inputs.mapping("variables"),
        volumes=inputs.texts("volumes", []),
        network=inputs.text("network", ""),
        hostname=inputs.text("hostname", ""),
        labels=inputs.mapping("labels"),
        options=inputs.mapping("options"),
        lease_seconds=inputs.number("lease_seconds", LEASE_SECONDS) or LEASE_SECONDS,
        patience_seconds=inputs.number("entrypoint_patience_seconds", PATIENCE_SECONDS),
    )
    inputs.done()
    return request


def engine_address(inputs: Inputs) -> str:
    """Return the input `engine`, else DOCKER_HOST, else Docker's default socket."""
    return inputs.text("engine", "") or os.environ.get("DOCKER_HOST") or DEFAULT_HOST


def container_name(owner: Owner) -> str:
    """Return the container's name, derived from the job, so that open and close steps find the same container."""
    environment = os.environ.get("REMUDA_ENVIRONMENT", "")
    return owner.name(f"job-{job_containers.short_digest(environment)}" if environment else "job")


def run(inputs: Inputs) -> None:
    request = read_request(inputs)
    engine, owner = Engine(request.engine), this_owner(request.job)
    job_containers.sweep(engine, owner)
    image = images.obtain(engine, request.image)
    started = time.monotonic()
    until = time.time() + request.lease_seconds
    network = request.network
    if network == JOB_NETWORK:
        network = job_containers.make_network(engine, owner, until=until, options=request.options)
    body = creation_body(request, owner, network=network, until=until, exchange=owner.folder)
    name = container_name(owner)
    user = request.user or image.config.get("User") or ""
    is_root = user.partition(":")[0] in ("", "0", "root")
    if not is_root:
        share(".")
    container, image = _start(engine, request, image, name, body)
    seconds = time.monotonic() - started
    say(f"Started the container {container[:12]} in {seconds:.1f} s")
    write_outputs(
        container=container,
        image=request.image.name,
        start_seconds=round(seconds, 3),
        environment={
            "exec": ["remuda-step", "container_exec", request.engine, container, "" if is_root else owner.folder]
        },
        **image.facts(),
    )


def _mount(folder: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"Type": "bind", "Source": folder, "Target": folder, "ReadOnly": read_only}


def creation_body(request: Request, owner: Owner, *, network: str, until: float, exchange: str) -> dict[str, Any]:
    """Return the body of the engine's call that creates the container, with the current folder (the job's working
    directory) mounted and the limits of REMUDA_LIMITS. `network`: a network's name; if empty, the engine's `bridge`.
    `until`: the latest end of the job, for the labels. `exchange`: the folder with scripts, inputs and outputs."""
    work_dir = os.getcwd()
    binds, inner = mounts(request.volumes)
    # Not as `Binds`, which separate paths by colons; a path may have one.
    shared = [_mount(folder) for folder in dict.fromkeys([work_dir, exchange]) if folder]
    shared += [_mount(folder, read_only=True) for folder in json.loads(os.environ.get("REMUDA_PACKAGES") or "[]")]
    host: dict[str, Any] = {"NetworkMode": network or "bridge"} | host_config(request.options, read_policy_limits())
    host |= {"Mounts": shared, "Binds": binds, "AutoRemove": True}
    own_labels = {key: str(value) for key, value in request.labels.items()}
    body: dict[str, Any] = {
        "Image": request.image.name,
        "Cmd": ["sh", "-c", idle_command(request.lease_seconds)],
        "Env": [
            *(f"{key}={value}" for key, value in request.variables.items()),
            f"{MARK}={container_name(owner)}",
        ],
        "User": request.user,
        "Hostname": request.hostname,
        "WorkingDir": work_dir,
        "OpenStdin": True,
        "Volumes": inner,
        "Labels": own_labels | owner.labels(role=JOB_ROLE, until=until) | {WORK_DIR: work_dir},
        "HostConfig": host,
    }
    if request.entrypoint:
        # In GitLab, a list with an empty text means: no entrypoint.
        body["Entrypoint"] = [] if request.entrypoint == [""] else request.entrypoint
    return body


def read_policy_limits() -> dict[str, Any]:
    """Read the resource limits that the job's policy sets for this container, from REMUDA_LIMITS."""
    limits: dict[str, Any] = json.loads(os.environ.get("REMUDA_LIMITS") or "{}")
    if any(limits.get("network") or ()) and all(limits["network"]):
        say("WARNING: the policy's list of allowed hosts is not enforced in a container")
    return limits


def idle_command(seconds: int) -> str:
    """Return a shell command that prints READY and then sleeps for `seconds`. Its `wait` reaps orphaned processes, and
    its trap lets the engine stop the container at once."""
    return f"echo {READY}; trap 'exit 0' TERM; sleep {seconds} & wait"


def _start(engine: Engine, request: Request, image: Image, name: str, body: dict[str, Any]) -> tuple[str, Image]:
    """Create the container and wait until it is ready. Returns its id and the image, which may have been pulled again.
    Raises StepError if the container ends before it is ready."""
    for _ in range(3):
        job_containers.remove(engine, name)
        try:
            container = create(engine, name, body, request.image.platform)
        except EngineRefusedError as error:
            if error.status != 404:
                raise
            # Another job may have removed the image to free disk space.
            say(f"The image {request.image.name} was removed meanwhile; getting it again")
            image = images.obtain(engine, request.image)
            continue
        ended = _wait_until_ready(engine, container, request)
        if ended is None:
            return container, image
        if ended != 0 or "Entrypoint" in body:
            raise StepError(
                f"the container ended before it was ready ({_format_code(ended)}); its output is above. If the image's "
                'entrypoint does not run the command in its arguments, disable the entrypoint: entrypoint: [""]'
            )
        say("WARNING: the image's entrypoint ended without running its arguments; trying again without the entrypoint")
        body["Entrypoint"] = []
    raise PlatformError(
        f"cannot start the container: the image {request.image.name} is removed again and again; find out what removes "
        "images on this machine"
    )


def create(engine: Engine, name: str, body: dict[str, Any], platform: str) -> str:
    query = {"name": name} | ({"platform": platform} if platform else {})
    answer = engine.call("POST", "/containers/create", query=query, body=body, seconds=START_SECONDS)
    for warning in answer.get("Warnings") or ():
        say(f"WARNING: {warning}")
    return str(answer["Id"])


def _wait_until_ready(engine: Engine, container: str, request: Request) -> int | None:
    """Start the container and write its output to the job log until it is ready. If it ended before that, returns its
    exit code, or -1 if the code is unknown; else None."""
    streams = dict.fromkeys(("stream", "stdin", "stdout", "stderr"), 1)
    with (
        closing(engine.stream(f"/containers/{container}/attach", query=streams)) as output,
        engine.start_call(f"/containers/{container}/wait", query={"condition": "removed"}) as code,
    ):
        try:
            engine.call("POST", f"/containers/{container}/start", seconds=START_SECONDS)
        except EngineRefusedError as error:
            job_containers.remove(engine, container)
            raise _start_error(error, request) from None
        output.write(f"{idle_command(request.lease_seconds)}\n".encode())
        if _is_ready_in_time(output, request.patience_seconds):
            return None
        if job_containers.inspect(engine, container) is None or output.has_ended:
            return _exit_code(code)
    say(
        f"WARNING: the image's entrypoint has not run its arguments in {request.patience_seconds} s; the job's steps "
        "run in the container while the entrypoint still runs"
    )
    if run_inside(engine, container, ["sh", "-c", ":"])[0]:
        job_containers.remove(engine, container)
        raise no_shell_error(request.image.name)
    return None


def _is_ready_in_time(output: Stream, seconds: float) -> bool:
    """True if the idle command prints its line within `seconds`, before the container ends. Other output is logged."""
    seen, shown = b"", 0
    until = time.monotonic() + seconds
    while not output.has_ended and time.monotonic() < until:
        parts = output.read(max(until - time.monotonic(), 0.01)) or []
        seen += b"".join(data for _, data in parts)
        before, ready, _ = seen.partition(f"{READY}\n".encode())
        shown = _show(before, shown, last=bool(ready) or output.has_ended)
        if ready:
            return True
    return False


def _exit_code(answer: Any) -> int:
    try:
        return int(answer(10.0)["StatusCode"])
    except (EngineRefusedError, KeyError, ValueError):
        return -1


def _show(text: bytes, shown: int, *, last: bool) -> int:
    """Write the complete lines of a container's output from position `shown` on to the job log, up to LARGEST_LOG_BYTES
    in total. Returns the new position. `last`: write an incomplete last line, too."""
    end = len(text) if last else text.rfind(b"\n") + 1
    end = min(end, LARGEST_LOG_BYTES)
    if end > shown:
        say(text[shown:end].decode(errors="replace").rstrip("\n"))
        return end
    return shown


def _start_error(error: EngineRefusedError, request: Request) -> StepError:
    text = str(error)
    missing = re.search(r'exec: "([^"]*)": (?:executable file not found|stat .*no such file|permission denied)', text)
    if missing and missing[1] == "sh":
        return no_shell_error(request.image.name)
    if missing:
        return StepError(f"the container's entrypoint {missing[1]} is missing in the image or not executable: {text}")
    # With a status below 500, the job's settings are wrong and a retry does not help.
    return PlatformError(f"cannot start the container: {text}") if error.status >= 500 else error


def no_shell_error(image: str) -> StepError:
    return StepError(
        f"the image {image} has no shell: a job's container needs the program sh in its PATH. Use a variant of the "
        "image that has one (names such as debug, alpine, slim often do)"
    )


def _format_code(code: int) -> str:
    return "unknown exit code" if code < 0 else f"exit code {code}"
