"""The wheel includes the marker file for type checkers, so that plugin authors get the types of the SDK."""

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[3]


def test_the_wheel_has_a_py_typed_marker() -> None:
    builder = WheelBuilder(str(ROOT))
    assert "remuda/py.typed" in {file.distribution_path for file in builder.recurse_included_files()}
