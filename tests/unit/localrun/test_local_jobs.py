from remuda.localrun.containers import ContainerUse
from remuda.localrun.local_jobs import LAST_LINES, LocalJobs

HEADER = "2026-01-02T03:04:05.000000Z 00O"


def log_line(text: str, *, continues: bool = False) -> bytes:
    return f"{HEADER}{'+' if continues else ' '}{text}\n".encode()


def feed(jobs: LocalJobs, *pieces: bytes, job: int = 1, offset: int = 0) -> int:
    for piece in pieces:
        jobs.note_log(job, offset, piece)
        offset += len(piece)
    return offset


def test_lines_come_once_and_the_last_one_when_nothing_follows() -> None:
    jobs = LocalJobs(streams=True)
    feed(jobs, log_line("one"), log_line("two"))
    assert jobs.take() == {1: ["one"]}
    assert jobs.take() == {1: ["two"]}
    assert jobs.take() == {}


def test_the_last_line_of_an_ended_job_comes_at_once() -> None:
    jobs = LocalJobs(streams=True)
    feed(jobs, log_line("one"), log_line("two"))
    assert jobs.take({1}) == {1: ["one", "two"]}


def test_a_line_in_pieces_is_one_line_if_its_rest_comes_soon() -> None:
    jobs = LocalJobs(streams=True)
    offset = feed(jobs, log_line("wor"))
    assert jobs.take() == {}
    offset = feed(jobs, log_line("king", continues=True), log_line("next"), offset=offset)
    assert jobs.take() == {1: ["working"]}
    assert jobs.take() == {1: ["next"]}
    offset = feed(jobs, log_line(" late", continues=True), log_line(""), log_line("end"), offset=offset)
    assert jobs.take({1}) == {1: [" late", "", "end"]}


def test_a_line_after_one_that_was_taken_early_follows_without_an_empty_one() -> None:
    jobs = LocalJobs(streams=True)
    offset = feed(jobs, log_line("one"))
    assert (jobs.take(), jobs.take()) == ({}, {1: ["one"]})
    feed(jobs, log_line("two"), offset=offset)
    assert jobs.take({1}) == {1: ["two"]}


def test_bytes_that_come_again_or_too_early_are_left_out() -> None:
    jobs = LocalJobs(streams=True)
    data = log_line("one") + log_line("two")
    for offset, piece in ((0, data[:10]), (0, data), (5, data[5:20]), (500, b"lost"), (len(data), log_line("three"))):
        jobs.note_log(1, offset, piece)
    assert jobs.take({1}) == {1: ["one", "two", "three"]}


def test_without_streaming_only_the_last_lines_that_are_not_blank_are_kept() -> None:
    jobs = LocalJobs()
    offset = feed(jobs, log_line("one"), log_line("\x1b[31mtwo\x1b[0m"), log_line(" "))
    assert jobs.last_lines(1) == ("one", "\x1b[31mtwo\x1b[0m")
    offset = feed(jobs, log_line("10%\r20%"), offset=offset)
    assert (jobs.last_lines(1)[2:], jobs.last_lines(2)) == (("20%",), ())
    # A line that grows is one line.
    offset = feed(jobs, log_line(" done", continues=True), offset=offset)
    assert jobs.last_lines(1)[2:] == ("20% done",)
    feed(jobs, *(log_line(str(number)) for number in range(LAST_LINES)), offset=offset)
    assert jobs.last_lines(1) == tuple(map(str, range(LAST_LINES)))
    assert jobs.take({1}) == {}


def test_what_a_job_names_is_noted_with_the_choice_of_the_run() -> None:
    jobs = LocalJobs(is_ignored=True)
    jobs.note_start(1, {"name": "python:3.12"}, [{"name": "redis:7"}])
    jobs.note_start(2, None, [])
    use = jobs.use_of(1)
    assert use == ContainerUse(image="python:3.12", services=("redis:7",), is_ignored=True)
    assert jobs.use_of(2) is None
