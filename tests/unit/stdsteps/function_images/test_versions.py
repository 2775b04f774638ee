import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.function_images.versions import check_version, choose_tags


@pytest.mark.parametrize(
    ("version", "existing", "tags"),
    [
        ("1.2.3", [], ["1.2.3", "1.2", "1", "latest"]),
        ("1.2.3", ["1.2.3", "1.2", "1", "latest"], ["1.2.3", "1.2", "1", "latest"]),
        ("1.2.3", ["1.2.4", "1.1.9"], ["1.2.3"]),
        ("1.2.3", ["1.3.0"], ["1.2.3", "1.2"]),
        ("1.2.3", ["2.0.0", "1.2.2"], ["1.2.3", "1.2", "1"]),
        ("1.10.0", ["1.9.9"], ["1.10.0", "1.10", "1", "latest"]),
        ("1.2.3", ["2.0.0-rc1", "main", "9", "9.9"], ["1.2.3", "1.2", "1", "latest"]),
        ("1.3.0-rc1", [], ["1.3.0-rc1"]),
    ],
)
def test_a_release_moves_the_tags_that_no_newer_release_has(version: str, existing: list[str], tags: list[str]) -> None:
    assert choose_tags(version, existing) == tags


@pytest.mark.parametrize("version", ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3+b", "1.2.3-", "1.2.3-a b", "latest"])
def test_a_version_has_three_numbers(version: str) -> None:
    with pytest.raises(StepError, match="three numbers"):
        check_version(version)
