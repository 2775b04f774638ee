"""Builders of local runs, as fixtures of this folder."""

from tests.support.local_runs import a_job, a_run, make_repo

__all__ = ["a_job", "a_run", "make_repo"]
