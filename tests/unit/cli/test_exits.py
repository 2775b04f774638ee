import importlib

import pytest

from remuda.cli.exits import KNOWN, code_of, describe, first_cause
from remuda.lib.exits import BadInputError, Exit
from remuda.pipeline import PipelineError, compile_pipeline


@pytest.mark.parametrize("name", KNOWN)
def test_every_error_known_by_name_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert issubclass(getattr(importlib.import_module(module), attribute), Exception)


def test_the_first_cause_of_an_exception_group_is_described() -> None:
    cause = BadInputError("port in use")
    group = ExceptionGroup("a", [ExceptionGroup("b", [cause, ValueError("later")])])
    assert first_cause(group) is cause
    assert describe(group) == ("port in use", Exit.BAD_INPUT)


def test_a_bad_pipeline_is_bad_input_with_file_and_line() -> None:
    with pytest.raises(PipelineError) as caught:
        compile_pipeline("build:\n  scrip: [make]\n", file=".gitlab-ci.yml")
    message, code = describe(caught.value)
    assert code is Exit.BAD_INPUT
    assert ".gitlab-ci.yml:2:3" in message


def test_an_interrupt_has_the_shells_code() -> None:
    assert describe(KeyboardInterrupt()) == ("interrupted", Exit.INTERRUPTED)


def test_bytes_that_are_not_utf8_are_bad_input() -> None:
    with pytest.raises(UnicodeEncodeError) as caught:
        "\udcff".encode()
    message, code = describe(caught.value)
    assert (code, "UTF-8" in message) == (Exit.BAD_INPUT, True)


def test_missing_permissions_are_bad_input() -> None:
    message, code = describe(PermissionError(13, "Permission denied", "/srv/cell"))
    assert (message.startswith("/srv/cell: permission denied"), code) == (True, Exit.BAD_INPUT)


def test_an_unknown_error_is_reported_as_a_bug() -> None:
    message, code = describe(ZeroDivisionError("x"))
    assert code is Exit.FAILURE
    assert "bug in remuda" in message
    assert code_of(ZeroDivisionError("x")) is None


def test_a_full_disk_is_named() -> None:
    message, code = describe(OSError(28, "No space left on device", "/data/cell.sqlite"))
    assert code is Exit.FAILURE
    assert "No space left on device" in message
