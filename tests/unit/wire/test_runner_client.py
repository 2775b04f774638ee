"""Reading of job payloads."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.wire.runner_api import JobPayload
from remuda.wire.runner_client import read_payload


def test_nulls_count_as_left_out() -> None:
    body = {
        "id": 1,
        "token": "t",
        "job_info": {"namespace_id": None, "name": "x"},
        "git_info": {"ref": None},
        "steps": [{"name": "script", "script": ["true"], "timeout": None}],
        "image": None,
        "artifacts": None,
    }
    payload = read_payload(json.dumps(body).encode())
    assert (payload.job_info.name, payload.job_info.namespace_id, payload.steps[0].timeout) == ("x", 0, 0)


def test_a_payload_of_the_wrong_kind_is_refused() -> None:
    for body in (b"[]", b'{"id": "x", "token": "t"}', b'{"id": 1}', b'{"id": 1, "token": null}'):
        with pytest.raises(msgspec.MsgspecError):
            read_payload(body)


@given(st.builds(JobPayload, id=st.integers(0, 2**53), token=st.text()))
def test_a_payload_is_read_as_it_was_written(payload: JobPayload) -> None:
    assert read_payload(msgspec.json.encode(payload)) == payload
