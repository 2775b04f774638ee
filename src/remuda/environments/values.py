"""What a plugin is told of a job and tells of its folders; protobuf stays in here and in `serving`."""

from remuda.lib.dataclass import dataclass
from remuda.wire.proto import environment_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What decides where a job's files are."""

    key: str
    """The job's id for the agent: unique for this hand-out, and the same in every process."""
    runner: str
    """Short token of its runner."""
    slot: int
    """No two jobs of a runner hold the same slot at the same time."""
    project: str
    """The project's path."""
    builds_dir: str = ""
    """The configured folder; empty: the plugin's own."""
    cache_dir: str = ""
    """The same for caches."""
    job: int | None = None
    """Where the job shall have a working directory of its own that no other job uses."""
    run_as: str = ""
    """Whom its steps run as, who then owns its folders; empty: the agent's user."""
    before_job: str = ""
    """The operator's command before a job."""
    after_job: str = ""
    """The same after it."""
    folder: str = ""
    """The working directory, below the folder of builds; empty: the manager does not say, and runner, slot and project
    make it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Of a job, as it sees them; whole paths."""

    work_dir: str
    builds_dir: str
    cache_dir: str


def to_wire(place: Place) -> pb.Place:
    return pb.Place(
        key=place.key,
        runner=place.runner,
        slot=place.slot,
        project=place.project,
        builds_dir=place.builds_dir,
        cache_dir=place.cache_dir,
        job=place.job,
        run_as=place.run_as,
        before_job=place.before_job,
        after_job=place.after_job,
        folder=place.folder,
    )


def from_wire(place: pb.Place) -> Place:
    return Place(
        key=place.key,
        runner=place.runner,
        slot=place.slot,
        project=place.project,
        builds_dir=place.builds_dir,
        cache_dir=place.cache_dir,
        job=place.job if place.HasField("job") else None,
        run_as=place.run_as,
        before_job=place.before_job,
        after_job=place.after_job,
        folder=place.folder,
    )
