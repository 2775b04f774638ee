import pytest

from remuda.stdsteps.transfer import HttpError, passing


@pytest.mark.parametrize("status", [0, 429, 502, 503, 504])
def test_a_server_that_is_away_is_waited_for(status: int) -> None:
    may_pass = passing(HttpError(status, "text", retry_after=7))
    assert may_pass is not None
    assert (may_pass.away, may_pass.retry_after) == (True, 7)


@pytest.mark.parametrize("status", [408, 500, 501])
def test_trouble_of_a_server_that_is_there_gets_a_few_tries(status: int) -> None:
    may_pass = passing(HttpError(status, "text"))
    assert may_pass is not None
    assert not may_pass.away


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_refusals_are_final(status: int) -> None:
    assert passing(HttpError(status, "text")) is None
