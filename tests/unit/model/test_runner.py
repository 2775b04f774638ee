"""Which jobs fit a runner, and the reason if a job does not."""

import pytest

from remuda.model.runner import CapabilityKey, Fingerprint, Pool, fits, lacks, misfit


def tags(*names: str) -> frozenset[str]:
    return frozenset(names)


def runner_of(*pools: Pool) -> Fingerprint:
    return Fingerprint(pools=frozenset(pools))


@pytest.mark.parametrize(
    ("offer", "need", "expected"),
    [
        (Fingerprint(), CapabilityKey(), None),
        (Fingerprint(tags=tags("a", "b")), CapabilityKey(tags=tags("a")), None),
        (Fingerprint(tags=tags("a")), CapabilityKey(tags=tags("a", "c", "b")), "lacks the tags b, c"),
        (Fingerprint(tags=tags("a"), run_untagged=False), CapabilityKey(), "only jobs with tags"),
        (Fingerprint(tags=tags("a"), run_untagged=False), CapabilityKey(tags=tags("a")), None),
        (Fingerprint(protected_only=True), CapabilityKey(), "protected refs"),
        (Fingerprint(protected_only=True), CapabilityKey(protected=True), None),
        (runner_of(("project", 1)), CapabilityKey(project_id=1), None),
        (runner_of(("project", 1)), CapabilityKey(project_id=2), "does not serve this project"),
        (runner_of(), CapabilityKey(project_id=2), "does not serve this project"),
        (runner_of(("group", 2)), CapabilityKey(project_id=1, group_ids=(3, 2)), None),
        (runner_of(("group", 1)), CapabilityKey(project_id=1, group_ids=(3, 2)), "does not serve this project"),
        (Fingerprint(), CapabilityKey(organization_id=2), None),
        (runner_of(("organization", 2)), CapabilityKey(organization_id=2), None),
        (runner_of(("organization", 1)), CapabilityKey(organization_id=2), "does not serve this project"),
    ],
)
def test_reasons_why_a_job_does_not_fit(offer: Fingerprint, need: CapabilityKey, expected: str | None) -> None:
    reason = misfit(offer, need)
    assert fits(offer, need) is (expected is None)
    assert (reason is None) if expected is None else (expected in (reason or ""))


def test_a_runner_with_the_tag_star_takes_jobs_with_any_tags() -> None:
    any_tags = Fingerprint(tags=frozenset({"*"}))
    assert lacks(any_tags, frozenset({"gpu", "linux"}), is_protected=False) is None
    assert lacks(any_tags, frozenset(), is_protected=False) is None
    only_tagged = Fingerprint(tags=frozenset({"*", "linux"}), run_untagged=False, protected_only=True)
    assert lacks(only_tagged, frozenset(), is_protected=True) == "the runner takes only jobs with tags"
    assert lacks(only_tagged, frozenset({"gpu"}), is_protected=True) is None
    assert lacks(only_tagged, frozenset({"gpu"}), is_protected=False) is not None
    assert lacks(Fingerprint(tags=frozenset({"linux"})), frozenset({"*"}), is_protected=False) is not None
