"""Values that an environment plugin gets and returns: a job (`Place`) and its folders, with their protobuf forms."""

from dataclasses import fields

from remuda.lib.dataclass import dataclass
from remuda.wire.proto import environment_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A job as an environment plugin sees it: identity, folders, hooks; the fields of the protobuf message `Place`."""

    key: str
    """The job's id for the agent: unique for this hand-out, and stable over restarts."""
    runner: str
    """Short token of the runner."""
    slot: int
    """Slot number: concurrent jobs of a runner have different ones."""
    project: str
    """The project's path."""
    builds_dir: str = ""
    """Configured folder for builds; empty: the plugin's default."""
    cache_dir: str = ""
    """Configured folder for caches; empty: the plugin's default."""
    job: int | None = None
    """Job number if the job needs a working directory that no other job uses; otherwise None."""
    run_as: str = ""
    """User of the job's steps, who owns its folders; empty: the agent's user."""
    before_job: str = ""
    """The operator's command before the job."""
    after_job: str = ""
    """The operator's command after the job."""
    folder: str = ""
    """Working directory below the folder for builds; empty: the plugin derives it from runner, slot and project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Absolute paths of a job's folders, as the job sees them."""

    work_dir: str
    builds_dir: str
    cache_dir: str


def to_wire(place: Place) -> pb.Place:
    return pb.Place(**{field.name: getattr(place, field.name) for field in fields(place)})


def from_wire(place: pb.Place) -> Place:
    values = {field.name: getattr(place, field.name) for field in fields(Place)}
    return Place(**values | {"job": place.job if place.HasField("job") else None})
