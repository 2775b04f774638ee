"""The features that the manager reports to the server."""

import pytest

from remuda.manager.polling.features import IMPLEMENTED, OF_CONTAINERS, OF_DRIVERS, OF_STEPS, runner_info
from remuda.wire.runner_api import FEATURES


def test_every_feature_is_sent_and_only_the_implemented_ones_are_true() -> None:
    features = runner_info(executor="shell").features
    assert features is not None
    assert list(features) == FEATURES
    assert {name for name, is_true in features.items() if is_true} == IMPLEMENTED | OF_STEPS
    assert {"cache", "fallback_cache_keys", "upload_multiple_artifacts", "multi_build_steps"} <= IMPLEMENTED
    assert not IMPLEMENTED & {
        "image",
        "services",
        "terminal",
        "job_inputs",
    }


@pytest.mark.parametrize(
    ("executor", "additional"),
    [
        ("shell", OF_STEPS),
        ("ssh", OF_STEPS),
        ("instance", OF_STEPS),
        ("docker", OF_CONTAINERS | OF_STEPS),
        ("docker-autoscaler", OF_CONTAINERS | OF_STEPS),
        ("docker+machine", OF_CONTAINERS | OF_STEPS),
        # A driver gets scripts; jobs with `run` are refused.
        ("custom", OF_DRIVERS),
    ],
)
def test_features_that_depend_on_the_executor(executor: str, additional: set[str]) -> None:
    features = runner_info(executor=executor).features
    assert features is not None
    assert {name for name, is_true in features.items() if is_true} == IMPLEMENTED | additional


def test_a_shell_runner_whose_jobs_may_use_containers_has_their_features() -> None:
    features = runner_info(executor="shell", has_containers=True).features
    assert features is not None
    assert {name for name, is_true in features.items() if is_true} == IMPLEMENTED | OF_CONTAINERS | OF_STEPS
