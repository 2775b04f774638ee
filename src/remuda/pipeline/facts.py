"""The facts for which a pipeline file is compiled: the ref, the event, variables, the files of the repository.

Variables of the file override predefined ones; variables of the project, and those with which the pipeline was started,
override those of the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from remuda.pipeline.predefined_variables import slug

MERGE_REQUEST = "merge_request_event"
"""CI_PIPELINE_SOURCE of a merge request."""
NO_SHA = "0" * 40
DEFAULT_NEEDS_LIMIT = 50


class SourceProblem(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a file or a comparison of commits is not available, and a suggestion to the user."""

    reason: str
    suggestion: str = ""
    is_missing: bool = False
    """A server answered that it does not have the file."""


ChangedFiles = Callable[[str | None], frozenset[str] | SourceProblem | None]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The ref, event, variables and files that rules are evaluated for; by default a push to `main`, files unknown."""

    ref: str = "main"
    is_tag: bool = False
    default_branch: str = "main"
    source: str = "push"
    """`push`, `web`, `api`, `schedule`, `trigger`, `pipeline`, `parent_pipeline`, `merge_request_event` ..."""
    sha: str = NO_SHA
    predefined: Mapping[str, str] = {}
    """Predefined variables that do not follow from the fields above, such as CI_PROJECT_PATH."""
    variables: Mapping[str, str] = {}
    """The project's variables, and over them those that the pipeline was started with."""
    raw: frozenset[str] = frozenset()
    """Names among `variables` whose values are not expanded."""
    changed_files: frozenset[str] | ChangedFiles | None = None
    """The files that a push or merge request changes, or a function that compares with a ref. None: unknown; then every
    `rules:changes` holds, as in GitLab for new branches and schedules."""
    files: Mapping[str, str] | None = None
    """The repository's files, with an id of their contents. None: unknown; then every `rules:exists` holds."""
    needs_limit: int = DEFAULT_NEEDS_LIMIT
    """How many jobs of its pipeline a job may need, each part of a parallel job counted."""

    @property
    def is_merge_request(self) -> bool:
        """True for the pipeline of a merge request, and for child pipelines of such a pipeline."""
        return self.source == MERGE_REQUEST or "CI_MERGE_REQUEST_IID" in self.predefined

    def changes_since(self, compare_to: str | None) -> frozenset[str] | SourceProblem | None:
        """Return the files that changed since the ref `compare_to`; if it is None, those that the push or merge request
        changed. Returns None if they are unknown, a SourceProblem if the ref cannot be compared. If `changed_files`
        is a set and not a function, it is returned for every ref."""
        return self.changed_files(compare_to) if callable(self.changed_files) else self.changed_files

    def pipeline_variables(self) -> dict[str, str]:
        """Return the predefined variables that exist before jobs are created, so that rules can use them."""
        variables = {
            "CI": "true",
            "GITLAB_CI": "true",
            "CI_PIPELINE_SOURCE": self.source,
            "CI_DEFAULT_BRANCH": self.default_branch,
            "CI_DEFAULT_BRANCH_SLUG": slug(self.default_branch),
            "CI_COMMIT_SHA": self.sha,
            "CI_COMMIT_SHORT_SHA": self.sha[:8],
            "CI_COMMIT_REF_NAME": self.ref,
            "CI_COMMIT_REF_SLUG": slug(self.ref),
        }
        if self.is_tag:
            variables["CI_COMMIT_TAG"] = self.ref
        elif not self.is_merge_request:
            variables["CI_COMMIT_BRANCH"] = self.ref
        return {**variables, **self.predefined}
