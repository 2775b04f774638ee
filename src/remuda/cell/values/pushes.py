"""What a push leads to: for each ref that it moved the new pipeline, or why there is none."""

import msgspec

from remuda.cell.values import Job, Pipeline
from remuda.pipeline import LeftOut, Mistake


class PushOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the push of one ref. `pipeline` is None if the push starts none; then `reason` says why."""

    ref: str
    """Full name, such as refs/heads/main."""
    sha: str
    pipeline: Pipeline | None = None
    jobs: tuple[Job, ...] = ()
    file: str = ""
    """Path of the pipeline file in the repository."""
    reason: str = ""
    """Why there is no pipeline, or why it is skipped or has failed."""
    mistakes: tuple[Mistake, ...] = ()
    """If there are any, they are the reason of the failure."""
    warnings: tuple[Mistake, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    """Jobs that rules leave out, if no job is left."""
    ignored_options: tuple[str, ...] = ()
    """Push options with an invalid value, or with an unknown name that begins with `ci.`."""
