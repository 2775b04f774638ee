import pytest

from remuda.model.runner import CapabilityKey, Fingerprint, fits, misfit


def tags(*names: str) -> frozenset[str]:
    return frozenset(names)


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
        (Fingerprint(project_ids=frozenset({1})), CapabilityKey(project_id=1), None),
        (Fingerprint(project_ids=frozenset({1})), CapabilityKey(project_id=2), "does not serve this project"),
        (Fingerprint(project_ids=frozenset()), CapabilityKey(project_id=2), "does not serve this project"),
    ],
)
def test_who_fits_whom_and_why_not(offer: Fingerprint, need: CapabilityKey, why: str | None) -> None:
    said = misfit(offer, need)
    assert fits(offer, need) is (why is None)
    assert (said is None) if why is None else (why in (said or ""))
