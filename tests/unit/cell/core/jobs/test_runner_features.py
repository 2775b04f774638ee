"""Runner features that a job requires."""

from typing import Any

import pytest

from remuda.cell.core.jobs.runner_features import features_of, missing_features
from remuda.cell.core.payload.variables import JobContext
from remuda.pipeline.spec import Artifacts
from remuda.testing.builders import a_job, a_pipeline, a_project, a_runner, a_spec


def job_context(*, merge_request_iid: int | None = None, **changes: Any) -> JobContext:
    return JobContext(
        job=a_job(),
        spec=a_spec(**changes),
        pipeline=a_pipeline(merge_request_iid=merge_request_iid),
        project=a_project(),
        runner=a_runner(),
        public_url="https://ci.example",
    )


@pytest.mark.parametrize(
    ("changes", "feature"),
    [
        ({"artifacts": Artifacts(paths=(), reports={"junit": ("a.xml",)})}, "upload_multiple_artifacts"),
        ({"artifacts": Artifacts(paths=("a",), exclude=("b",))}, "artifacts_exclude"),
        ({"merge_request_iid": 4}, "refspecs"),
        ({"retry_exit_codes": (3,)}, "return_exit_code"),
        ({"allow_failure_exit_codes": (3,)}, "return_exit_code"),
        ({"cache": ({"key": "k", "paths": ["x"], "fallback_keys": ["m"]},)}, "fallback_cache_keys"),
        ({"secrets": {"PASSWORD": {"vault": {}, "file": True}}}, "vault_secrets"),
    ],
)
def test_required_feature(changes: dict[str, Any], feature: str) -> None:
    context = job_context(**changes)
    assert set(features_of(context)) == {feature}
    assert missing_features(context, {feature: True}) is None
    message = missing_features(context, {feature: False, "cache": True})
    assert message
    assert message.startswith(f"the runner that got it does not have the feature {feature} (for ")
    assert missing_features(context, {}) == message


def test_a_plain_job_requires_no_feature() -> None:
    release = {"tag_name": "v1"}
    assert not features_of(
        job_context(artifacts=Artifacts(paths=("a",)), cache=({"key": "k", "paths": ["x"]},), release=release)
    )
