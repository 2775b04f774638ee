from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from remuda.model.job import JobId
from remuda.model.runner import CapabilityKey, Fingerprint, fits
from remuda.queue import WaitingJobs

ANY = Fingerprint(tags=frozenset({"linux", "gpu"}))
LINUX = CapabilityKey(tags=frozenset({"linux"}))
GPU = CapabilityKey(tags=frozenset({"gpu"}))


def test_the_oldest_that_fits_comes_first() -> None:
    waiting = WaitingJobs()
    waiting.add(JobId(3), GPU)
    waiting.add(JobId(1), LINUX)
    waiting.add(JobId(2), GPU)
    assert waiting.choose(ANY) == 1
    assert waiting.choose(Fingerprint(tags=frozenset({"gpu"}))) == 2
    assert waiting.choose(Fingerprint()) is None
    assert waiting.waiting() == {LINUX: 1, GPU: 2}


def test_a_job_that_comes_back_is_as_old_as_before() -> None:
    waiting = WaitingJobs()
    for number in (1, 2, 3):
        waiting.add(JobId(number), LINUX)
    assert waiting.discard(JobId(1)) == LINUX
    assert waiting.choose(ANY) == 2
    waiting.add(JobId(1), LINUX)
    assert waiting.choose(ANY) == 1


def test_a_job_may_come_back_with_other_needs() -> None:
    waiting = WaitingJobs()
    waiting.add(JobId(1), LINUX)
    waiting.discard(JobId(1))
    waiting.add(JobId(1), GPU)
    assert waiting.choose(Fingerprint(tags=frozenset({"linux"}))) is None
    assert waiting.choose(Fingerprint(tags=frozenset({"gpu"}))) == 1


KEYS = st.builds(CapabilityKey, tags=st.frozensets(st.sampled_from("abc")), project_id=st.integers(1, 2))
OFFERS = st.builds(
    Fingerprint,
    tags=st.frozensets(st.sampled_from("abc")),
    run_untagged=st.booleans(),
    project_ids=st.none() | st.frozensets(st.integers(1, 2)),
)
IDS = st.integers(1, 9).map(JobId)


class AgainstAPlainList(RuleBasedStateMachine):
    """The grouped queue chooses what a walk over all jobs would choose."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = WaitingJobs()
        self.plain: dict[JobId, CapabilityKey] = {}

    @rule(job=IDS, key=KEYS)
    def add(self, job: JobId, key: CapabilityKey) -> None:
        self.waiting.add(job, key)
        self.plain.setdefault(job, key)

    @rule(job=IDS)
    def discard(self, job: JobId) -> None:
        assert self.waiting.discard(job) == self.plain.pop(job, None)

    @rule(offer=OFFERS)
    def choose(self, offer: Fingerprint) -> None:
        expected = min((job for job, key in self.plain.items() if fits(offer, key)), default=None)
        assert self.waiting.choose(offer) == expected

    @invariant()
    def counts(self) -> None:
        assert len(self.waiting) == len(self.plain) == sum(self.waiting.waiting().values())
        assert all(job in self.waiting for job in self.plain)


TestAgainstAPlainList = AgainstAPlainList.TestCase
