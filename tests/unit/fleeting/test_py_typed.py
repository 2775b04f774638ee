"""The types of the SDK reach whoever writes a plugin with it."""

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[3]


def test_a_wheel_says_that_it_has_types() -> None:
    builder = WheelBuilder(str(ROOT))
    assert "remuda/py.typed" in {one.distribution_path for one in builder.recurse_included_files()}
