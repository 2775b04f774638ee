import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.wire.runner_api import (
    FEATURES,
    JobPayload,
    RegisterRunner,
    RequestJob,
    RunnerCredentials,
    UpdateJob,
    fits_content_range,
    parse_content_range,
    tags_of,
)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("0-9", 0),
        ("5-5", 5),
        (" 10-20 ", 10),
        ("10-", 10),
        ("10-3", 10),
        ("", None),
        ("-5", None),
        ("5", None),
        ("bytes 0-9", None),
        ("0-9/10", None),
        ("a-b", None),
        ("-1-5", None),
        ("1.5-2", None),
        ("²-3", None),
        ("9" * 19 + "-1", None),
    ],
)
def test_content_ranges(text: str, start: int | None) -> None:
    assert parse_content_range(text) == start


@given(st.text())
def test_content_ranges_never_raise(text: str) -> None:
    start = parse_content_range(text)
    assert start is None or start >= 0


@given(st.integers(0, 10**18 - 1), st.integers(0, 10**18))
def test_content_ranges_as_runners_send_them(start: int, end: int) -> None:
    assert parse_content_range(f"{start}-{end}") == start


@pytest.mark.parametrize(
    ("text", "length", "fits"),
    [
        ("0-9", 10, True),
        ("0-10", 10, True),  # old runners, and gitlab-python-runner
        ("5-", 10, True),
        ("5-14", 10, True),
        ("5-15", 10, True),
        ("5-13", 10, False),
        ("5-16", 10, False),
        ("5-0", 10, False),
        ("0-0", 1, True),
        ("0-0", 2, False),
        (f"0-{10**30}", 2, False),
        ("x", 2, False),
    ],
)
def test_content_ranges_and_body_lengths(text: str, length: int, fits: bool) -> None:
    assert fits_content_range(text, length) is fits


@pytest.mark.parametrize(
    ("value", "tags"),
    [(None, ()), ("", ()), ("a, b,,a ", ("a", "b")), (["b", " a", "", "b"], ("b", "a")), ([], ())],
)
def test_tags(value: str | list[str] | None, tags: tuple[str, ...]) -> None:
    assert tags_of(value) == tags


def test_unknown_fields_are_ignored_and_null_is_accepted() -> None:
    raw = b'{"token": "t", "new": {"x": 1}, "last_update": null, "info": {"features": {"variables": true}, "n": 1}}'
    request = msgspec.json.decode(raw, type=RequestJob)
    assert request.last_update is None
    assert request.info is not None
    assert request.info.features == {"variables": True}
    assert msgspec.json.decode(b"{}", type=UpdateJob) == UpdateJob()


def test_unset_fields_are_not_sent() -> None:
    assert msgspec.json.encode(UpdateJob(token="t", state="running")) == b'{"token":"t","state":"running"}'
    assert msgspec.json.encode(RegisterRunner(token="t", paused=False)) == b'{"token":"t","paused":false}'


def test_an_answer_has_every_field() -> None:
    expected = b'{"id":1,"token":"t","token_expires_at":null}'
    assert msgspec.json.encode(RunnerCredentials(id=1, token="t")) == expected


def test_a_payload_of_another_server_is_read() -> None:
    raw = b"""{"id": 5, "token": "t", "job_info": {"id": 5, "time_in_queue_seconds": 1.5, "scoped_user_id": null},
      "variables": [{"key": "A", "value": "b", "public": true}], "image": null, "artifacts": null, "cache": null,
      "steps": [{"name": "script", "script": ["true"], "timeout": 60, "when": "on_success", "allow_failure": false}],
      "features": {"trace_sections": true, "tracing": null}, "policy_options": null}"""
    payload = msgspec.json.decode(raw, type=JobPayload)
    assert (payload.id, payload.artifacts, payload.steps[0].script) == (5, None, ["true"])
    assert payload.features is not None
    assert payload.features.trace_sections


def test_a_payload_survives_the_wire() -> None:
    payload = JobPayload(id=1, token="t")
    sent = msgspec.json.encode(payload)
    assert msgspec.json.decode(sent, type=JobPayload) == payload
    assert msgspec.json.decode(sent)["git_info"]["ref_type"] == "branch"


def test_the_features_that_a_runner_names() -> None:
    assert len(FEATURES) == len(set(FEATURES)) == 31
