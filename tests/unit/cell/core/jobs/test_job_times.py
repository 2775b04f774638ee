"""The time of a job split into parts, from step events or from sections of the log."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.jobs.job_times import PARTS, Span, spans_of_sections, spans_of_steps, split
from remuda.cell.values import Job
from remuda.lib.clock import stamp
from remuda.model.job import JobState
from remuda.testing.builders import NOW, a_job
from remuda.wire.explanations import TimeSplit


def a_finished_job(**changes: Any) -> Job:
    values: dict[str, Any] = {
        "state": JobState.SUCCESS,
        "pending_at": NOW,
        "leased_at": NOW + 10,
        "started_at": NOW + 11,
        "finished_at": NOW + 60,
    }
    return a_job(**(values | changes))


def a_finished_event(name: str, start: float, seconds: float, **more: Any) -> dict[str, Any]:
    return {
        "event": "finished",
        "name": name,
        "path": f"/{name}",
        "origin": "compiled",
        "started_at": stamp(NOW + start),
        "finished_at": stamp(NOW + start + seconds),
    } | more


def a_started_event(name: str, start: float, **more: Any) -> dict[str, Any]:
    return {
        "event": "started",
        "name": name,
        "path": f"/{name}",
        "origin": "compiled",
        "time": stamp(NOW + start),
    } | more


def parts(time_split: TimeSplit | None) -> dict[str, float]:
    """Check that the parts add up to the total; return those above zero."""
    assert time_split is not None
    assert sum(time_split.parts.values()) == pytest.approx(time_split.total_seconds, abs=1e-6)
    return {name: seconds for name, seconds in time_split.parts.items() if seconds}


STEPS = [
    a_finished_event("get_sources", 15, 4, reference="builtin://checkout@1"),
    a_finished_event("restore_cache", 19, 1, reference="builtin://cache_restore@1"),
    a_finished_event("restore_cache_2", 20, 1, reference="builtin://cache_restore@1"),
    a_finished_event("download_artifacts", 21, 2, reference="builtin://artifacts_download@1"),
    a_finished_event("step_script", 23, 20, reference="builtin://script@1", origin="user"),
    a_finished_event("after_script", 43, 1, reference="builtin://script@1", origin="user"),
    a_finished_event("archive_cache", 44, 3, reference="builtin://cache_save@1"),
    a_finished_event("upload_artifacts", 47, 5, reference="builtin://artifacts_upload@1"),
]


class TestSteps:
    def test_parts_of_all_steps(self) -> None:
        time_split = split(a_finished_job(), spans_of_steps(STEPS, NOW), "steps", NOW)
        assert time_split is not None
        assert (time_split.source, time_split.total_seconds) == ("steps", 60)
        assert list(time_split.parts) == list(PARTS)
        assert parts(time_split) == {
            "waiting": 10,
            "machine": 5,
            "clone": 4,
            "cache": 5,
            "artifacts": 2,
            "script": 21,
            "upload": 5,
            "other": 8,
        }

    @pytest.mark.parametrize(
        ("step", "part"),
        [
            ({"name": "pre_get_sources_script", "reference": "builtin://script@1"}, "clone"),
            ({"name": "pre_build_script", "reference": "builtin://script@1"}, "script"),
            ({"name": "image", "reference": "builtin://container@1"}, "image"),
            ({"name": "db", "reference": "builtin://service@1"}, "image"),
            ({"name": "get_sources", "origin": "user"}, "script"),
            ({"name": "scan", "reference": "registry.example/scan@2"}, "other"),
            ({"name": None, "reference": 5}, "other"),
        ],
    )
    def test_part_of_a_step(self, step: dict[str, Any], part: str) -> None:
        [span] = spans_of_steps([a_finished_event("x", 0, 1) | step], NOW)
        assert span.part == part

    def test_a_running_step_lasts_until_now(self) -> None:
        event = {"event": "started", "name": "step_script", "origin": "user", "time": stamp(NOW + 20)}
        job = a_finished_job(state=JobState.RUNNING, finished_at=None)
        time_split = split(job, spans_of_steps([event], NOW + 50), "steps", NOW + 50)
        assert parts(time_split) == {"waiting": 10, "machine": 10, "script": 30}

    def test_the_time_of_nested_steps_counts_once(self) -> None:
        events = [
            a_started_event("container", 10, reference="builtin://container@1.0.0"),
            a_finished_event("+open", 10, 5, path="/container/+open", reference="builtin://container@1.0.0"),
            a_finished_event("step_script", 15, 30, path="/container/step_script", origin="user"),
            a_finished_event("+close", 45, 1, path="/container/+close", reference="builtin://container@1.0.0"),
            a_finished_event("container", 10, 40, reference="builtin://container@1.0.0"),
        ]
        time_split = split(a_finished_job(), spans_of_steps(events, NOW), "steps", NOW)
        assert parts(time_split) == {"waiting": 10, "image": 10, "script": 30, "other": 10}

    def test_parallel_steps_share_their_time(self) -> None:
        events = [
            a_started_event("both", 10),
            a_finished_event("one", 10, 20, path="/both/one", origin="user"),
            a_finished_event("two", 10, 20, path="/both/two", reference="builtin://cache_save@1"),
            a_finished_event("both", 10, 20),
        ]
        time_split = split(a_finished_job(), spans_of_steps(events, NOW), "steps", NOW)
        assert parts(time_split) == {"waiting": 10, "script": 10, "cache": 10, "other": 30}

    def test_all_attempts_count(self) -> None:
        events = [
            a_finished_event("fetch", 10, 3, retried=True, attempt=1, reference="builtin://cache_restore@1"),
            a_finished_event("fetch", 20, 4, attempt=2, reference="builtin://cache_restore@1"),
        ]
        assert parts(split(a_finished_job(), spans_of_steps(events, NOW), "steps", NOW))["cache"] == 7

    def test_a_skipped_step_has_no_time(self) -> None:
        assert spans_of_steps([a_finished_event("x", 0, 1) | {"started_at": None}], NOW) == []

    @pytest.mark.parametrize("result", ["text", 5, None, {}, {"event": "finished"}, {"event": "?", "time": stamp(NOW)}])
    def test_results_of_another_shape_are_ignored(self, result: object) -> None:
        assert spans_of_steps([result], NOW) == []

    def test_an_agent_whose_clock_is_behind(self) -> None:
        spans = [Span("clone", NOW - 1000, 4), Span("script", NOW - 990, 20)]
        assert parts(split(a_finished_job(), spans, "steps", NOW)) == {
            "waiting": 10,
            "clone": 4,
            "script": 20,
            "other": 26,
        }

    def test_an_agent_whose_clock_is_ahead(self) -> None:
        spans = [Span("script", NOW + 10_000, 20)]
        assert parts(split(a_finished_job(), spans, "steps", NOW)) == {"waiting": 10, "machine": 30, "script": 20}

    def test_steps_that_are_longer_than_the_job(self) -> None:
        assert parts(split(a_finished_job(), [Span("script", NOW, 500), Span("upload", NOW, 5)], "steps", NOW)) == {
            "waiting": 10,
            "script": 50,
        }


class TestWithoutSteps:
    def test_a_finished_job_has_waiting_and_running_time(self) -> None:
        time_split = split(a_finished_job(), [], "steps", NOW)
        assert time_split == TimeSplit(source="times", total_seconds=60, parts={"waiting": 10, "running": 50})

    def test_a_waiting_job(self) -> None:
        waiting = a_job(state=JobState.PENDING, pending_at=NOW)
        assert parts(split(waiting, [], "steps", NOW + 7)) == {"waiting": 7}

    def test_a_job_that_was_never_pending_has_no_times(self) -> None:
        assert split(a_job(), [], "steps", NOW) is None

    def test_a_trigger_job(self) -> None:
        time_split = split(a_finished_job(is_trigger=True), [Span("script", NOW, 5)], "steps", NOW)
        assert parts(time_split) == {"waiting": 10, "running": 50}


def marker(kind: str, time: int, name: str) -> str:
    return f"section_{kind}:{time}:{name}\r\x1b[0K"


def a_log(*markers: tuple[str, int, str]) -> bytes:
    return "some line\n".join(marker(*fields) for fields in markers).encode()


class TestSections:
    def test_sections_of_the_runner(self) -> None:
        text = a_log(
            ("start", 12, "prepare_executor"),
            ("end", 14, "prepare_executor"),
            ("start", 14, "prepare_script"),
            ("end", 15, "prepare_script"),
            ("start", 15, "get_sources"),
            ("end", 18, "get_sources"),
            ("start", 18, "step_script"),
            ("end", 40, "step_script"),
            ("start", 40, "upload_artifacts_on_success"),
            ("end", 45, "upload_artifacts_on_success"),
        )
        spans = [span._replace(began=span.began + NOW) for span in spans_of_sections(text)]
        assert parts(split(a_finished_job(), spans, "sections", NOW)) == {
            "waiting": 10,
            "machine": 3,
            "image": 2,
            "clone": 3,
            "script": 22,
            "upload": 5,
            "other": 15,
        }

    def test_sections_of_the_script_count_as_script(self) -> None:
        text = a_log(
            ("start", 10, "step_script"),
            ("start", 11, "get_sources"),
            ("start", 11, "mine"),
            ("end", 12, "mine"),
            ("end", 13, "get_sources"),
            ("end", 20, "step_script"),
        )
        assert spans_of_sections(text) == [Span("script", 10, 10)]

    def test_a_section_without_an_end_lasts_until_the_next(self) -> None:
        text = a_log(
            ("start", 10, "step_script"),
            ("end", 12, "mine"),
            ("start", 30, "archive_cache"),
            ("end", 31, "archive_cache"),
        )
        assert spans_of_sections(text) == [Span("script", 10, 20), Span("cache", 30, 1)]

    def test_an_end_without_a_start_is_ignored(self) -> None:
        assert spans_of_sections(a_log(("end", 12, "step_script"))) == []

    @given(st.binary(max_size=300))
    def test_any_log_can_be_read(self, text: bytes) -> None:
        spans_of_sections(text + b"section_start:1:step_script" + text)


SPANS = st.lists(
    st.builds(Span, st.sampled_from(PARTS[1:]), st.floats(NOW - 1e6, NOW + 1e6), st.floats(0, 1e12)), max_size=8
)


@given(spans=SPANS, waiting=st.floats(0, 1e5), running=st.floats(0, 1e5), leased=st.booleans())
def test_the_parts_always_add_up_to_the_total(spans: list[Span], waiting: float, running: float, leased: bool) -> None:
    job = a_finished_job(leased_at=NOW + waiting if leased else None, finished_at=NOW + waiting + running)
    time_split = split(job, spans, "steps", NOW)
    assert time_split is not None
    assert all(seconds >= 0 for seconds in time_split.parts.values())
    assert round(sum(time_split.parts.values()) * 1e6) == round(time_split.total_seconds * 1e6)
