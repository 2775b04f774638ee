"""The queue of waiting jobs: order by priority, age and fairness, compared with a plain list."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from remuda.model.job import JobId
from remuda.model.runner import CapabilityKey, Fingerprint, fits
from remuda.queue import AGE_STEP_SECONDS, AGE_STEPS, Place, Waiting, WaitingJobs, summarize_lines

ANY = Fingerprint(tags=frozenset({"linux", "gpu"}))
LINUX = CapabilityKey(tags=frozenset({"linux"}))
GPU = CapabilityKey(tags=frozenset({"gpu"}))


def test_the_oldest_job_that_fits_comes_first() -> None:
    waiting = WaitingJobs()
    waiting.add(JobId(3), GPU)
    waiting.add(JobId(1), LINUX)
    waiting.add(JobId(2), GPU)
    assert waiting.choose(ANY) == 1
    assert waiting.choose(Fingerprint(tags=frozenset({"gpu"}))) == 2
    assert waiting.choose(Fingerprint()) is None
    assert waiting.count_by_key() == {LINUX: 1, GPU: 2}


def test_a_job_that_returns_keeps_its_age() -> None:
    waiting = WaitingJobs()
    for number in (1, 2, 3):
        waiting.add(JobId(number), LINUX)
    assert waiting.discard(JobId(1))
    assert waiting.choose(ANY) == 2
    waiting.add(JobId(1), LINUX)
    assert waiting.choose(ANY) == 1


def test_a_job_can_return_with_other_requirements() -> None:
    waiting = WaitingJobs()
    waiting.add(JobId(1), LINUX)
    waiting.discard(JobId(1))
    waiting.add(JobId(1), GPU)
    assert waiting.choose(Fingerprint(tags=frozenset({"linux"}))) is None
    assert waiting.choose(Fingerprint(tags=frozenset({"gpu"}))) == 1


def test_a_job_that_returns_with_other_requirements_leaves_its_old_lane() -> None:
    waiting = WaitingJobs()
    for number in (1, 2, 3):
        waiting.add(JobId(number), LINUX)
    waiting.discard(JobId(2))
    waiting.add(JobId(2), GPU)
    waiting.discard(JobId(1))
    assert waiting.choose(Fingerprint(tags=frozenset({"linux"}))) == 3


def test_a_project_that_moves_into_a_group_has_jobs_with_both_keys() -> None:
    waiting = WaitingJobs()
    waiting.add(JobId(1), CapabilityKey(project_id=5))
    waiting.add(JobId(2), CapabilityKey(project_id=5, group_ids=(9,)))
    assert waiting.choose(Fingerprint(pools=frozenset({("group", 9)}))) == 2
    assert waiting.choose(Fingerprint(pools=frozenset({("project", 5)}))) == 1


def test_priority_comes_before_age_and_grows_with_age_up_to_a_limit() -> None:
    waiting = WaitingJobs()
    waiting.add(JobId(1), LINUX, since=0)
    waiting.add(JobId(2), LINUX, priority=2, since=0)
    assert waiting.choose(ANY, 0) == 2
    waiting.discard(JobId(2))
    late = AGE_STEPS * AGE_STEP_SECONDS
    waiting.add(JobId(3), LINUX, priority=AGE_STEPS, since=late)
    waiting.add(JobId(4), LINUX, priority=AGE_STEPS + 1, since=late)
    assert waiting.choose(ANY, late - 0.1) == 4
    waiting.discard(JobId(4))
    assert waiting.choose(ANY, late - 0.1) == 3, "the older job has not gained enough priority yet"
    assert waiting.choose(ANY, late) == 1
    waiting.add(JobId(5), LINUX, priority=AGE_STEPS + 1, since=late)
    assert waiting.choose(ANY, late + AGE_STEP_SECONDS - 0.1) == 5, "the gain by waiting is limited"


def test_jobs_alike_have_the_same_project_requirements_and_priority() -> None:
    waiting = WaitingJobs()
    for number in range(1, 21):
        waiting.add(JobId(number), LINUX, priority=number // 18)
    waiting.add(JobId(21), GPU, priority=1)
    waiting.add(JobId(22), CapabilityKey(tags=LINUX.tags, project_id=7), priority=1)
    assert waiting.choose(ANY) == 18
    assert (waiting.as_good(JobId(18)), list(waiting.alike(JobId(18), 4))) == (3, [18, 19, 20])
    for number in (18, 19, 20, 21, 22, 1):
        waiting.discard(JobId(number))
    assert waiting.choose(ANY) == 2
    assert list(waiting.alike(JobId(2), 4)) == [2, 3, 4, 5]
    assert list(waiting.alike(JobId(2), 1)) == [2]


@given(st.lists(st.tuples(st.sampled_from(["add", "take", "back", "look"]), st.integers(1, 60)), max_size=200))
def test_jobs_alike_are_the_oldest_waiting_jobs(steps: list[tuple[str, int]]) -> None:
    waiting = WaitingJobs()
    waiting_ids: set[int] = set()
    taken: dict[int, Waiting] = {}
    for action, number in steps:
        if action == "add" and number not in taken:
            waiting.add(JobId(number), LINUX)
            waiting_ids.add(number)
        elif action == "take" and (job := waiting.take(JobId(number))):
            taken[number] = job
            waiting_ids.discard(number)
        elif action == "back" and number in taken:
            waiting.put_back(JobId(number), taken.pop(number))
            waiting_ids.add(number)
        elif action == "look" and waiting_ids:
            alike = list(waiting.alike(JobId(min(waiting_ids)), 4))
            assert alike == sorted(waiting_ids)[: len(alike)]
            assert alike or len(steps) > 16


def test_projects_take_turns_by_their_running_jobs() -> None:
    waiting = WaitingJobs()
    for number in range(1, 7):
        waiting.add(JobId(number), CapabilityKey(project_id=1))
    for number in range(7, 10):
        waiting.add(JobId(number), CapabilityKey(project_id=2))
    busy = {1: 0, 2: 0}
    order = []
    while (job := waiting.choose(Fingerprint())) is not None:
        taken = waiting.take(job)
        assert taken
        order.append(job)
        busy[taken.key.project_id] += 1
        waiting.occupy(taken.key.project_id, busy[taken.key.project_id])
    assert order == [1, 7, 2, 8, 3, 9, 4, 5, 6]


def test_without_fairness_age_alone_counts() -> None:
    waiting = WaitingJobs(is_fair=False)
    waiting.add(JobId(1), CapabilityKey(project_id=1))
    waiting.add(JobId(2), CapabilityKey(project_id=2))
    waiting.occupy(1, 5)
    assert waiting.choose(Fingerprint()) == 1


def test_outdated_heap_entries_are_removed() -> None:
    waiting = WaitingJobs()
    waiting.add(JobId(1), LINUX)
    waiting.add(JobId(2), LINUX)
    for number in range(1000):
        waiting.occupy(0, number)
    [lane] = waiting._lanes.values()
    assert max(map(len, lane.firsts.values())) < 100


def test_entries_of_projects_without_jobs_are_removed() -> None:
    waiting = WaitingJobs()
    waiting.add(JobId(1), LINUX)
    for number in range(2, 1000):
        waiting.add(JobId(number), CapabilityKey(tags=LINUX.tags, project_id=number, group_ids=(number,)))
        waiting.occupy(number, 1)
        waiting.discard(JobId(number))
    [lane] = waiting._lanes.values()
    assert sum(map(len, lane.firsts.values())) < 100


def test_a_changed_priority_takes_effect_at_once() -> None:
    waiting = WaitingJobs()
    waiting.add(JobId(1), LINUX, since=0)
    waiting.add(JobId(2), LINUX, since=0)
    waiting.prioritize(JobId(2), 5)
    waiting.prioritize(JobId(9), 5)
    assert waiting.choose(ANY) == 2
    waiting.prioritize(JobId(2), -1)
    assert waiting.choose(ANY) == 1
    assert len(waiting) == 2
    late = AGE_STEPS * AGE_STEP_SECONDS
    waiting.prioritize(JobId(1), -AGE_STEPS)
    assert waiting.choose(ANY, late) == 2, "a changed priority does not change the waiting time"


def test_a_place_counts_only_jobs_that_the_same_runners_could_take() -> None:
    waiting = WaitingJobs()
    waiting.add(JobId(1), GPU)
    waiting.add(JobId(2), LINUX)
    waiting.add(JobId(3), LINUX)
    waiting.occupy(0, 4)
    only_linux = Fingerprint(tags=frozenset({"linux"}))
    place = waiting.place(JobId(3), [only_linux])
    assert place == Place(ahead=1, competing=2, level=0, running=4)
    with_both_runners = waiting.place(JobId(3), [only_linux, ANY])
    assert with_both_runners is not None
    assert (with_both_runners.ahead, with_both_runners.competing) == (2, 3)
    without_runner = waiting.place(JobId(3), [])
    assert without_runner is not None
    assert (without_runner.ahead, without_runner.competing) == (1, 2), (
        "without a runner only jobs with the same key count"
    )
    assert waiting.place(JobId(9), [ANY]) is None


PROJECTS = st.integers(1, 3)
KEYS = st.builds(
    lambda tags, protected, project, group: CapabilityKey(
        tags=tags, protected=protected, project_id=project, group_ids=(group,), organization_id=1 + project // 3
    ),
    st.frozensets(st.sampled_from("abc")),
    st.booleans(),
    PROJECTS,
    st.integers(0, 1),
)
POOLS = st.one_of(
    st.just(("cell", 0)),
    st.just(("organization", 1)),
    st.just(("organization", 2)),
    st.integers(0, 1).map(lambda number: ("group", number)),
    PROJECTS.map(lambda number: ("project", number)),
)
OFFERS = st.builds(
    Fingerprint,
    tags=st.frozensets(st.sampled_from("abc")),
    run_untagged=st.booleans(),
    protected_only=st.booleans(),
    pools=st.frozensets(POOLS, max_size=3),
)
IDS = st.integers(1, 9).map(JobId)


class ComparisonWithPlainList(RuleBasedStateMachine):
    """The grouped queue chooses the same job as a search over all jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = WaitingJobs()
        self.plain: dict[JobId, tuple[CapabilityKey, int, float]] = {}
        self.busy: dict[int, int] = {}
        self.now = 0.0

    @rule(job=IDS, key=KEYS, priority=st.integers(-2, 2), waited=st.floats(0, 2000))
    def add(self, job: JobId, key: CapabilityKey, priority: int, waited: float) -> None:
        since = self.now - waited
        self.waiting.add(job, key, priority=priority, since=since)
        self.plain.setdefault(job, (key, priority, since))

    @rule(job=IDS)
    def discard(self, job: JobId) -> None:
        assert self.waiting.discard(job) is (self.plain.pop(job, None) is not None)

    @rule(job=IDS)
    def put_back(self, job: JobId) -> None:
        taken = self.waiting.take(job)
        if taken:
            self.waiting.put_back(job, taken)

    @rule(project=PROJECTS, jobs=st.integers(0, 3))
    def occupy(self, project: int, jobs: int) -> None:
        self.waiting.occupy(project, jobs)
        self.busy[project] = jobs

    @rule(seconds=st.floats(0, 1000))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(job=IDS, priority=st.integers(-2, 2))
    def prioritize(self, job: JobId, priority: int) -> None:
        self.waiting.prioritize(job, priority)
        if job in self.plain:
            key, _, since = self.plain[job]
            self.plain[job] = (key, priority, since)

    @rule(offer=OFFERS)
    def places(self, offer: Fingerprint) -> None:
        """A job's place is the number of jobs that are taken before it if nothing else changes."""
        expected_places = {job: self.waiting.place(job, [offer], self.now) for job in self.plain}
        taken = []
        while (job := self.waiting.choose(offer, self.now)) is not None:
            waiting = self.waiting.take(job)
            assert waiting
            taken.append((job, waiting))
            project = waiting.key.project_id
            self.waiting.occupy(
                project, self.busy.get(project, 0) + sum(entry.key.project_id == project for _, entry in taken)
            )
        for number, (job, waiting) in enumerate(taken):
            place = expected_places[job]
            assert place
            assert (place.ahead, place.competing, place.level) == (number, len(taken), waiting.level)
        for job, waiting in taken:
            self.waiting.put_back(job, waiting)
        for project in {waiting.key.project_id for _, waiting in taken}:
            self.waiting.occupy(project, self.busy.get(project, 0))

    @rule(offer=OFFERS)
    def choose(self, offer: Fingerprint) -> None:
        def rank(job: JobId) -> tuple[int, int, JobId]:
            key, priority, since = self.plain[job]
            steps, due = 0, since + AGE_STEP_SECONDS
            while steps < AGE_STEPS and due <= self.now:
                steps, due = steps + 1, due + AGE_STEP_SECONDS
            return -(priority + steps), self.busy.get(key.project_id, 0), job

        expected = min((job for job, (key, _, _) in self.plain.items() if fits(offer, key)), key=rank, default=None)
        assert self.waiting.choose(offer, self.now) == expected
        if expected is not None:
            alike = list(self.waiting.alike(expected, 3))
            assert (alike[0], len(set(alike)), len(alike) <= 3) == (expected, len(alike), True)
            assert {(self.plain[job][0], rank(job)[:2]) for job in alike} == {
                (self.plain[expected][0], rank(expected)[:2])
            }

    @invariant()
    def counts(self) -> None:
        assert len(self.waiting) == len(self.plain) == sum(self.waiting.count_by_key().values())
        assert all(job in self.waiting for job in self.plain)


TestComparisonWithPlainList = ComparisonWithPlainList.TestCase


def test_upcoming_jobs_are_those_that_a_runner_would_choose() -> None:
    queue, keys = WaitingJobs(), [CapabilityKey(project_id=number) for number in (1, 2, 3)]
    for number in range(1, 31):
        queue.add(JobId(number), keys[number % 3], priority=number % 4 // 3, since=float(number))
    queue.prioritize(JobId(30), 5)
    queue.discard(JobId(4))
    queue.add(JobId(99), CapabilityKey(tags=frozenset({"gpu"}), project_id=1))
    queue.occupy(2, 3)
    busy = {1: 0, 2: 3, 3: 0}
    upcoming = list(queue.upcoming(keys))
    chosen = []
    while (job_id := queue.choose(Fingerprint())) is not None and job_id != JobId(99):
        chosen.append(job_id)
        waiting = queue.take(job_id)
        assert waiting is not None
        busy[waiting.key.project_id] += 1
        queue.occupy(waiting.key.project_id, busy[waiting.key.project_id])
    assert upcoming == chosen
    assert len(upcoming) == 29


def test_summary_by_key() -> None:
    queue, one, two = WaitingJobs(), CapabilityKey(project_id=1), CapabilityKey(project_id=2)
    for number, key in enumerate((one, one, two), 1):
        queue.add(JobId(number), key, since=100.0 - number)
    assert {(line.key, line.waiting, line.oldest_since) for line in summarize_lines(queue.entries())} == {
        (one, 2, 98.0),
        (two, 1, 97.0),
    }
    queue.discard(JobId(2))
    assert next(line.oldest_since for line in summarize_lines(queue.entries()) if line.key == one) == 99.0
