"""Makes the builders of local runs available as fixtures."""

from tests.support.local_runs import a_job, a_run, make_repo

__all__ = ["a_job", "a_run", "make_repo"]
