"""The example configurations in docs/reference/environments.md are valid and use the executors of their sections."""

import re
from pathlib import Path

from remuda.manager.config.load import load
from remuda.manager.environments.kinds import KIND_OF_EXECUTOR

PAGE = Path(__file__).parents[4] / "docs/reference/environments.md"


def test_the_examples_can_be_loaded(tmp_path: Path) -> None:
    kinds = []
    for text in re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        (tmp_path / "config.toml").write_text(text)
        (tmp_path / "config.toml").chmod(0o600)
        loaded = load(tmp_path / "config.toml")
        assert loaded.warnings == ()
        kinds += [KIND_OF_EXECUTOR[runner.executor] for runner in loaded.config.runners]
    assert kinds == ["ssh", "machines"]
