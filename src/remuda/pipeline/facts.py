"""What a pipeline file is judged against: the ref, how the pipeline came about, variables, the repository's files.

Nothing is decided here but which variables follow from the facts and whose value wins: the file's stand over the
predefined ones, the project's and those the pipeline was started with over the file's. The cell makes `Facts` from a
push, `remuda run` from the work tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from remuda.pipeline.predefined_variables import slug

# As GitLab calls it in CI_PIPELINE_SOURCE.
MERGE_REQUEST = "merge_request_event"
NO_SHA = "0" * 40


class SourceProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why something that the file asks for cannot be had, and what to do about it."""

    reason: str
    suggestion: str = ""


ChangedFiles = Callable[[str | None], frozenset[str] | SourceProblem | None]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The circumstances of one pipeline. Without any: a push to `main` of which no files are known."""

    ref: str = "main"
    is_tag: bool = False
    default_branch: str = "main"
    # push, web, api, schedule, trigger, pipeline, parent_pipeline, merge_request_event ...
    source: str = "push"
    sha: str = NO_SHA
    # Variables of the pipeline that do not follow from the fields above, such as CI_PROJECT_PATH.
    predefined: Mapping[str, str] = {}
    # The project's variables, and over them those the pipeline was started with.
    variables: Mapping[str, str] = {}
    # Names among `variables` whose values hold no references.
    raw: frozenset[str] = frozenset()
    # The files a push or merge request changes, or a way to ask: with a ref, what differs from it. None: not known, so
    # that every `rules:changes` holds, as in GitLab for new branches and schedules.
    changed_files: frozenset[str] | ChangedFiles | None = None
    # The repository's files with an id of their contents. None: not known, so that every `rules:exists` holds.
    files: Mapping[str, str] | None = None

    @property
    def is_merge_request(self) -> bool:
        """Whether the pipeline is of a merge request, or a child of such a one."""
        return self.source == MERGE_REQUEST or "CI_MERGE_REQUEST_IID" in self.predefined

    def changed(self, compare_to: str | None) -> frozenset[str] | SourceProblem | None:
        """What changed since `compare_to`, or since the last pipeline."""
        return self.changed_files(compare_to) if callable(self.changed_files) else self.changed_files

    def pipeline_variables(self) -> dict[str, str]:
        """The predefined variables that rules can rely on."""
        variables = {
            "CI": "true",
            "GITLAB_CI": "true",
            "CI_PIPELINE_SOURCE": self.source,
            "CI_DEFAULT_BRANCH": self.default_branch,
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
