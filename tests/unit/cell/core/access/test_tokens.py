"""Runner tokens and signed job tokens."""

import pytest

from remuda.cell.core.access.tokens import JobTokens, runner_token
from remuda.model.job import JobId, ProjectId
from remuda.model.runner import RunnerType
from remuda.testing.builders import NOW, a_job
from remuda.wire import routable_token
from remuda.wire.job_token import new_key
from remuda.wire.routable_token import TokenError

RANDOM = bytes(range(16))


def test_a_runner_token_contains_its_routing() -> None:
    token = runner_token(cell_id=12, runner_type=RunnerType.PROJECT, project_id=77, random=RANDOM)
    assert token.startswith("glrt-")
    assert routable_token.decode(token).routing == {"c": 12, "o": 1, "p": 77, "t": 3, "u": 1}


def test_the_token_of_a_registered_runner_has_another_prefix_and_no_user() -> None:
    token = runner_token(cell_id=1, runner_type=RunnerType.INSTANCE, random=RANDOM, registered=True)
    assert token.startswith("glrtr-")
    assert routable_token.decode(token).routing == {"c": 1, "t": 1}


def test_job_tokens_outlive_the_timeout() -> None:
    tokens = JobTokens([new_key("a")], cell_id=3, issuer="https://ci.example")
    job = a_job(id=JobId(10), project_id=ProjectId(4), epoch=6)
    token = tokens.issue(job, timeout_seconds=7200, now=NOW)
    claims = tokens.read(token, now=NOW + 7200 + 299)
    assert (claims.cell_id, claims.job_id, claims.project_id, claims.epoch) == (3, 10, 4, 6)
    for _ in range(2):
        with pytest.raises(TokenError, match="expired"):
            tokens.read(token, now=NOW + 7200 + 301)
    for end in range(len(token)):
        with pytest.raises(TokenError):
            tokens.read(token[:end], now=NOW)


def test_the_number_of_cached_tokens_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.cell.core.access.tokens.REMEMBERED_TOKENS", 3)
    tokens = JobTokens([new_key("a")], cell_id=3, issuer="https://ci.example")
    for number in [*range(1, 9), *range(1, 9)]:
        token = tokens.issue(a_job(id=JobId(number)), timeout_seconds=1, now=NOW)
        assert tokens.read(token, now=NOW).job_id == tokens.read(token, now=NOW).job_id == number
    assert len(tokens._verified) == 3


def test_old_keys_verify_and_the_newest_key_signs() -> None:
    old, new = new_key("old"), new_key("new")
    job = a_job()
    before = JobTokens([old], cell_id=1, issuer="i").issue(job, timeout_seconds=1, now=NOW)
    both = JobTokens([old, new], cell_id=1, issuer="i")
    assert both.read(before, now=NOW).job_id == job.id
    only_new = JobTokens([new], cell_id=1, issuer="i")
    assert only_new.read(both.issue(job, timeout_seconds=1, now=NOW), now=NOW).job_id == job.id


def test_a_token_of_another_cell_is_refused() -> None:
    key = new_key("shared")
    token = JobTokens([key], cell_id=2, issuer="i").issue(a_job(), timeout_seconds=1, now=NOW)
    with pytest.raises(TokenError, match="cell 2"):
        JobTokens([key], cell_id=1, issuer="i").read(token, now=NOW)


def test_at_least_one_key_is_required() -> None:
    with pytest.raises(ValueError, match="signing key"):
        JobTokens([], cell_id=1, issuer="i")
