"""Opens the container that a step's inner steps run in: gets the image, starts a container, and leaves it waiting.

The container idles under the image's own entrypoint, with the job's working directory and its exchange folder mounted
at the paths they have outside, so every path that a variable names is right inside, too. The inner steps are started in
it by `container_exec`; `container_close` removes it. Decides when it is ready:

- its entrypoint has run what it was given, which says so on the container's output;
- or it reads commands from its input, where the same is waiting for it (an entrypoint such as `sh -c` drops its words);
- or it still runs after some seconds: then it is left running, and a line says that.

One that ends before that is reported with what it printed. One that ends with success simply ran what it is made for,
so the container is started again without it. The engine removes the container as soon as it has ended, also when
nobody is left to ask for that; the idling ends by itself when the job's time is over.
"""

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
from remuda.stdsteps.common.outputs import tell
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
"""For an entrypoint that runs something else than what it is given."""
START_SECONDS = 120.0
LARGEST_LOG_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the inputs ask for."""

    image: images.Wish
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


def read_wish(inputs: Inputs) -> Wish:
    """The inputs of `container`; those of `service` are read there."""
    wish = Wish(
        image=images.read_wish(inputs),
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
    return wish


def engine_address(inputs: Inputs) -> str:
    """The engine that the inputs name, or the user's own."""
    return inputs.text("engine", "") or os.environ.get("DOCKER_HOST") or DEFAULT_HOST


def container_name(owner: Owner) -> str:
    """Of the container that this environment is; the same for opening and closing."""
    environment = os.environ.get("REMUDA_ENVIRONMENT", "")
    return owner.name(f"job-{job_containers.part_of(environment)}" if environment else "job")


def run(inputs: Inputs) -> None:
    wish = read_wish(inputs)
    engine, owner = Engine(wish.engine), this_owner(wish.job)
    job_containers.sweep(engine, owner)
    image = images.obtain(engine, wish.image)
    started = time.monotonic()
    until = time.time() + wish.lease_seconds
    network = wish.network
    if network == JOB_NETWORK:
        network = job_containers.make_network(engine, owner, until=until, options=wish.options)
    body = creation(wish, owner, network=network, until=until, exchange=owner.folder)
    name = container_name(owner)
    user = wish.user or image.config.get("User") or ""
    is_root = user.partition(":")[0] in ("", "0", "root")
    if not is_root:
        share(".")
    container, image = _start(engine, wish, image, name, body)
    seconds = time.monotonic() - started
    say(f"The container {container[:12]} runs; it took {seconds:.1f} s")
    tell(
        container=container,
        image=wish.image.name,
        start_seconds=round(seconds, 3),
        environment={
            "exec": ["remuda-step", "container_exec", wish.engine, container, "" if is_root else owner.folder]
        },
        **image.facts(),
    )


def creation(wish: Wish, owner: Owner, *, network: str, until: float, exchange: str) -> dict[str, Any]:
    """What the engine is asked to make. Pure, but for the working directory and the limits of this process."""
    work_dir = os.getcwd()
    binds, inner = mounts(wish.volumes)
    shared = [f"{folder}:{folder}" for folder in dict.fromkeys([work_dir, exchange]) if folder]
    host: dict[str, Any] = {"NetworkMode": network or "bridge"} | host_config(wish.options, policy_limits())
    host |= {"Binds": [*shared, *binds], "AutoRemove": True}
    own_labels = {key: str(value) for key, value in wish.labels.items()}
    made: dict[str, Any] = {
        "Image": wish.image.name,
        "Cmd": ["sh", "-c", idling(wish.lease_seconds)],
        "Env": [
            *(f"{key}={value}" for key, value in wish.variables.items()),
            f"{MARK}={container_name(owner)}",
        ],
        "User": wish.user,
        "Hostname": wish.hostname,
        "WorkingDir": work_dir,
        "OpenStdin": True,
        "Volumes": inner,
        "Labels": own_labels | owner.labels(role=JOB_ROLE, until=until) | {WORK_DIR: work_dir},
        "HostConfig": host,
    }
    if wish.entrypoint:
        # A list with an empty text is how GitLab says: none at all.
        made["Entrypoint"] = [] if wish.entrypoint == [""] else wish.entrypoint
    return made


def policy_limits() -> dict[str, Any]:
    """What a policy holds this container to."""
    limits: dict[str, Any] = json.loads(os.environ.get("REMUDA_LIMITS") or "{}")
    if any(limits.get("network") or ()) and all(limits["network"]):
        say("WARNING: the list of hosts that may be reached is not enforced in a container")
    return limits


def idling(seconds: int) -> str:
    """The command that waits. Waiting collects orphans, and an engine that stops it need not wait itself."""
    return f"echo {READY}; trap 'exit 0' TERM; sleep {seconds} & wait"


def _start(engine: Engine, wish: Wish, image: Image, name: str, body: dict[str, Any]) -> tuple[str, Image]:
    """The container's id, once it is ready."""
    for _ in range(3):
        job_containers.remove(engine, name)
        try:
            container = create(engine, name, body, wish.image.platform)
        except EngineRefusedError as error:
            if error.status != 404:
                raise
            # Somebody made room on the disk between the pull and now.
            say(f"The image {wish.image.name} is gone again; getting it once more")
            image = images.obtain(engine, wish.image)
            continue
        ended = _until_ready(engine, container, wish)
        if ended is None:
            return container, image
        if ended != 0 or "Entrypoint" in body:
            raise StepError(
                f"the container ended before it was ready ({_in_words(ended)}); what it printed stands above. If the "
                'image\'s entrypoint is not meant to run a command that it is given, switch it off: entrypoint: [""]'
            )
        say("WARNING: the image's entrypoint ended without running what it was given; going on without the entrypoint")
        body["Entrypoint"] = []
    raise PlatformError(f"the container cannot be started: the image {wish.image.name} does not stay on this machine")


def create(engine: Engine, name: str, body: dict[str, Any], platform: str) -> str:
    """Make a container; its id."""
    query = {"name": name} | ({"platform": platform} if platform else {})
    made = engine.call("POST", "/containers/create", query=query, body=body, seconds=START_SECONDS)
    for warning in made.get("Warnings") or ():
        say(f"WARNING: {warning}")
    return str(made["Id"])


def _until_ready(engine: Engine, container: str, wish: Wish) -> int | None:
    """Start it, and pass on what it prints until it is ready: None. Where it ends instead: its exit code, or -1."""
    streams = dict.fromkeys(("stream", "stdin", "stdout", "stderr"), 1)
    with (
        closing(engine.stream(f"/containers/{container}/attach", query=streams)) as output,
        engine.later(f"/containers/{container}/wait", query={"condition": "removed"}) as code,
    ):
        try:
            engine.call("POST", f"/containers/{container}/start", seconds=START_SECONDS)
        except EngineRefusedError as error:
            job_containers.remove(engine, container)
            raise _start_error(error, wish) from None
        output.write(f"{idling(wish.lease_seconds)}\n".encode())
        if _has_become_ready(output, wish.patience_seconds):
            return None
        if job_containers.inspect(engine, container) is None or output.has_ended:
            return _exit_code(code)
    say(
        "WARNING: the image's entrypoint runs something of its own and has not come to what it was given in "
        f"{wish.patience_seconds} s; going on beside it"
    )
    if run_inside(engine, container, ["sh", "-c", ":"])[0]:
        job_containers.remove(engine, container)
        raise no_shell(wish.image.name)
    return None


def _has_become_ready(output: Stream, seconds: float) -> bool:
    """Whether the container says so before it ends or the time is over; the rest of its words goes to the log."""
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
    """Whole lines to the log, of which only so many: the rest of an entrypoint that talks without end is dropped."""
    end = len(text) if last else text.rfind(b"\n") + 1
    end = min(end, LARGEST_LOG_BYTES)
    if end > shown:
        say(text[shown:end].decode(errors="replace").rstrip("\n"))
        return end
    return shown


def _start_error(error: EngineRefusedError, wish: Wish) -> StepError:
    text = str(error)
    missing = re.search(r'exec: "([^"]*)": (?:executable file not found|stat .*no such file|permission denied)', text)
    if missing and missing[1] == "sh":
        return no_shell(wish.image.name)
    if missing:
        return StepError(f"the container's entrypoint {missing[1]} is not in the image, or no program: {text}")
    # Settings that this machine cannot fulfil are nothing that another try would change.
    return PlatformError(f"the container cannot be started: {text}") if error.status >= 500 else error


def no_shell(image: str) -> StepError:
    """For an image in which no step can run."""
    return StepError(
        f"the image {image} has no shell: a job's container needs the program sh in its PATH. Use a variant of the "
        "image that has one (names such as debug, alpine, slim often do)"
    )


def _in_words(code: int) -> str:
    return "how is not known" if code < 0 else f"exit code {code}"
