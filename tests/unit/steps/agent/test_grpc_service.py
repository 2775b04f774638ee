import errno
import os

import pytest
from grpclib.exceptions import GRPCError

from remuda.steps.agent.grpc_service import _status_codes


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/events"), "No space left on device"),
        (OSError("the folder is gone"), "the folder is gone"),
    ],
    ids=["of the system", "with a text only"],
)
def test_an_error_of_the_data_folder_has_its_cause_in_the_message(error: OSError, cause: str) -> None:
    with pytest.raises(GRPCError) as caught, _status_codes():
        raise error
    assert caught.value.message == f"the agent cannot use its data folder: {cause}"
