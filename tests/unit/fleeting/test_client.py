"""Errors of calls to a plugin."""

import pytest
from grpclib import GRPCError, Status

from remuda.environments.client import translate_errors as translate_environment_errors
from remuda.environments.errors import TemporaryError as EnvironmentTemporaryError
from remuda.fleeting.client import HungError, translate_errors
from remuda.fleeting.errors import TemporaryError


@pytest.mark.parametrize("error", [TimeoutError(), GRPCError(Status.DEADLINE_EXCEEDED)])
def test_a_timeout_is_the_same_whichever_side_notices_it_first(error: Exception) -> None:
    with pytest.raises(HungError, match="the plugin has not answered Increase in time"), translate_errors("Increase"):
        raise error
    with (
        pytest.raises(EnvironmentTemporaryError, match="the plugin has not answered Prepare in time"),
        translate_environment_errors("Prepare"),
    ):
        raise error


def test_a_timeout_that_the_plugin_describes_keeps_its_text() -> None:
    with pytest.raises(TemporaryError, match="the cloud is slow") as caught, translate_errors("Increase"):
        raise GRPCError(Status.DEADLINE_EXCEEDED, "the cloud is slow")
    assert not isinstance(caught.value, HungError)
