"""The containers of a local platform's jobs: what the user wants (`ContainerWish`), and what a job names
(`ContainerUse`), for the display. The manager decides for each job, and looks for the engine when a job starts. This
module looks for it only to tell the user. Runs without such jobs load no client of an engine."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.lib.dataclass import dataclass
from remuda.lib.exits import BadInputError
from remuda.localrun.options import DEFAULT_IMAGE, ContainersChoice

if TYPE_CHECKING:
    from remuda.pipeline import Pipeline

AGAIN = 5
AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerWish:
    """The options `--containers` and `--image`."""

    choice: ContainersChoice = "auto"
    image: str = DEFAULT_IMAGE

    def check(self, environ: Mapping[str, str]) -> None:
        """Raise BadInputError if all jobs are to run in containers and no engine answers."""
        if self.choice != "always":
            return
        from remuda.stdsteps.engine.discovery import find_engine

        search = find_engine(environ)
        if search.engine is None:
            raise BadInputError(f"--containers always: {search.explain()}")

    def concerns(self, pipeline: "Pipeline") -> bool:
        """True if a job of the pipeline is to run in a container."""
        return self.choice == "always" or (
            self.choice == "auto" and any(job.image or job.services for job in pipeline.jobs)
        )

    def announce(self, environ: Mapping[str, str]) -> str:
        """Look for the engine, and return a sentence about it for the user."""
        from remuda.stdsteps.engine.discovery import find_engine

        search = find_engine(environ)
        if search.engine is not None:
            return f"containers: {search.engine}"
        # The log of each such job says where an engine was looked for.
        return (
            "jobs with image: or services: will fail, because no container engine answers; start one, or use "
            "--no-containers to run them on this machine without images and services"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUse:
    """The image and the services that a job names, and whether they are ignored."""

    image: str
    services: tuple[str, ...]
    is_ignored: bool


def remove_containers(folder: Path, environ: Mapping[str, str]) -> None:
    """Remove all containers and networks of jobs whose files are in the data folder `folder`, after their run was
    killed. A call that the agent had sent before its death may still create one, so they are looked for again."""
    from remuda.stdsteps.common.errors import StepError
    from remuda.stdsteps.engine.discovery import find_engine
    from remuda.stdsteps.engine.docker_api import Engine
    from remuda.stdsteps.engine.job_containers import remove_of_folder

    search = find_engine(environ)
    if search.engine is None:
        return
    for _ in range(AGAIN):
        with suppress(StepError):
            if not remove_of_folder(Engine(search.engine.address), folder.absolute()):
                return
        time.sleep(AGAIN_SECONDS)


def use_of(
    image: Mapping[str, Any] | None, services: Sequence[Mapping[str, Any]] | None, *, is_ignored: bool
) -> ContainerUse | None:
    """Return what a job's payload names in `image` and `services`; None if it has neither."""
    name = str((image or {}).get("name") or "")
    names = tuple(str(service.get("name") or "?") for service in services or ())
    return ContainerUse(image=name, services=names, is_ignored=is_ignored) if name or names else None
