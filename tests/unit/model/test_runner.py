import pytest

from remuda.model.runner import CapabilityKey, Fingerprint, Pool, fits, misfit


def tags(*names: str) -> frozenset[str]:
    return frozenset(names)


def serving(*pools: Pool) -> Fingerprint:
    return Fingerprint(pools=frozenset(pools))


@pytest.mark.parametrize(
    ("offer", "need", "why"),
    [
        (Fingerprint(), CapabilityKey(), None),
        (Fingerprint(tags=tags("a", "b")), CapabilityKey(tags=tags("a")), None),
        (Fingerprint(tags=tags("a")), CapabilityKey(tags=tags("a", "c", "b")), "lacks the tags b, c"),
        (Fingerprint(tags=tags("a"), run_untagged=False), CapabilityKey(), "only jobs with tags"),
        (Fingerprint(tags=tags("a"), run_untagged=False), CapabilityKey(tags=tags("a")), None),
        (Fingerprint(protected_only=True), CapabilityKey(), "protected refs"),
        (Fingerprint(protected_only=True), CapabilityKey(protected=True), None),
        (serving(("project", 1)), CapabilityKey(project_id=1), None),
        (serving(("project", 1)), CapabilityKey(project_id=2), "does not serve this project"),
        (serving(), CapabilityKey(project_id=2), "does not serve this project"),
        (serving(("group", 2)), CapabilityKey(project_id=1, group_ids=(3, 2)), None),
        (serving(("group", 1)), CapabilityKey(project_id=1, group_ids=(3, 2)), "does not serve this project"),
        (Fingerprint(), CapabilityKey(organization_id=2), "does not serve this project"),
    ],
)
def test_who_fits_whom_and_why_not(offer: Fingerprint, need: CapabilityKey, why: str | None) -> None:
    said = misfit(offer, need)
    assert fits(offer, need) is (why is None)
    assert (said is None) if why is None else (why in (said or ""))
