"""The buffer of events: reading from a position, wire format and filters."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.event_buffer import Buffer, Event, EventFilter, EventKind
from remuda.model.job import JobId, PipelineId, ProjectId


def an_event(number: int = 1, kind: EventKind = EventKind.JOB) -> Event:
    return Event(
        kind=kind,
        body=b"%d" % number,
        project_id=ProjectId(7),
        pipeline_id=PipelineId(8),
        job_id=JobId(9) if kind is EventKind.JOB else None,
    )


@given(st.integers(1, 20), st.integers(0, 60), st.integers(-3, 70), st.integers(1, 30))
def test_all_events_after_a_position_or_none(capacity: int, added: int, place: int, at_most: int) -> None:
    buffer = Buffer("b", capacity)
    for number in range(1, added + 1):
        buffer.add(an_event(number))
    events = buffer.after(place, at_most=at_most)
    if not max(added - capacity, 0) <= place <= added:
        assert events is None
    else:
        assert events is not None
        assert [int(event.body) for event in events] == list(range(place + 1, added + 1))[:at_most]


def test_positions_before_forget_are_invalid() -> None:
    buffer = Buffer("b")
    buffer.add(an_event())
    before = buffer.last
    buffer.forget()
    assert buffer.after(before, at_most=1) is None
    assert buffer.after(buffer.last, at_most=1) == []


def test_a_position_is_valid_for_one_buffer() -> None:
    buffer = Buffer("abc")
    assert buffer.place(buffer.mark(17)) == 17
    for mark in ("", "17", "abc", "abc-", "abc-x", "abd-17", f"abc-{'9' * 30}", "abc-\N{SUPERSCRIPT TWO}"):
        assert buffer.place(mark) is None


def test_wire_format() -> None:
    buffer = Buffer("b")
    assert buffer.text(3, an_event()) == b"id: b-3\nevent: job\ndata: 1\n\n"
    assert buffer.heartbeat(4) == b": alive\nid: b-4\n\n"
    assert buffer.reset("why") == b'id: b-0\nevent: reset\ndata: {"reason":"why"}\n\n'


def test_filters() -> None:
    job, pipeline = an_event(), an_event(kind=EventKind.PIPELINE)
    runner = Event(kind=EventKind.RUNNER, body=b"{}")
    assert all(EventFilter().covers(event) for event in (job, pipeline, runner))
    assert [EventFilter(job_id=JobId(9)).covers(event) for event in (job, pipeline, runner)] == [True, False, False]
    assert [EventFilter(pipeline_id=PipelineId(8)).covers(event) for event in (job, pipeline, runner)] == [
        True,
        True,
        False,
    ]
    assert not EventFilter(project_id=ProjectId(1)).covers(job)
    assert not EventFilter(kinds=frozenset({EventKind.RUNNER})).covers(job)
    assert EventFilter().runners
    assert not EventFilter(project_id=ProjectId(7)).runners
    assert not EventFilter(kinds=frozenset({EventKind.JOB})).runners
