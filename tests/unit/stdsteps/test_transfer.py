import pytest

from remuda.stdsteps.transfer import HttpError, next_try


@pytest.mark.parametrize(
    ("status", "tries"), [(0, 3), (500, 3), (502, 3), (503, 6), (429, 3), (408, 3), (400, 1), (403, 1), (404, 1)]
)
def test_how_often_is_tried(status: int, tries: int) -> None:
    error = HttpError(status, "text")
    failures = 1
    while next_try(error, failures, jitter=0.5) is not None:
        failures += 1
    assert failures == tries


def test_the_server_says_how_long_to_wait() -> None:
    assert next_try(HttpError(503, "", retry_after=7), 1, jitter=0.5) == 7
    assert next_try(HttpError(503, "", retry_after=7000), 1, jitter=0.5) == 60
