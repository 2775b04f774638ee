import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.container.exec import Session
from remuda.stdsteps.engine.docker_api import STDERR


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_first_line_is_the_id_of_the_session(end: bytes) -> None:
    session = Session()
    assert session.strip_id(1, b"12") == b""
    assert session.strip_id(STDERR, b"an error") == b"an error"
    assert session.strip_id(1, b"3" + end + b"out") == b"out"
    assert session.id == "123"
    assert session.strip_id(1, b"4\n") == b"4\n"
    session.check_started()


def test_warnings_of_the_shell_before_the_id_are_output() -> None:
    session = Session()
    assert session.strip_id(1, b"sh: warning: cannot change locale\r\n12") == b""
    assert session.strip_id(1, b"3\r\n$ ") == b"sh: warning: cannot change locale\r\n$ "
    assert session.id == "123"


def test_a_message_of_the_engine_instead_of_an_id_is_an_error() -> None:
    session = Session()
    assert session.strip_id(1, b"OCI runtime exec failed: no sh\r\n") == b""
    assert session.id == ""
    with pytest.raises(StepError, match=r"could not be started in the container: OCI runtime exec failed: no sh$"):
        session.check_started()
