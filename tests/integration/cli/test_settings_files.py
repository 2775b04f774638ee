"""Settings files of `remuda run` and `remuda pipeline`: `.remuda.toml` of a repository, and the user's own."""

import json
from pathlib import Path
from typing import Any

from tests.support.git_client import Clone

PIPELINE = """
build: {script: ['echo building for $TARGET']}
ship: {script: ['echo shipping'], when: manual}
"""


def make_shop(world: Any, settings: str = "") -> Path:
    shop: Path = world.folder / "shop"
    (shop / "ci").mkdir(parents=True)
    (shop / "ci" / "main.yml").write_text(PIPELINE)
    (shop / ".remuda.toml").write_text(settings)
    return shop


def write_user_file(world: Any, text: str) -> Path:
    file: Path = world.folder / ".config" / "remuda" / "settings.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_run_without_arguments_takes_its_options_from_the_files(world: Any) -> None:
    shop = make_shop(world, "file = 'ci/main.yml'\nplay-manual = true\noutput = 'json'\n[variable]\nTARGET = 'arm'\n")
    write_user_file(world, f"data = '{world.folder}/kept'\nisolation = 'none'\noutput = 'text'\nlogs = true\n")
    result = world.remuda("run", cwd=shop)
    assert result.code == 0, result.err
    assert "--isolation none" in result.err
    jobs = {job["name"]: job for job in json.loads(result.out)["jobs"]}
    assert (jobs["build"]["status"], jobs["ship"]["status"]) == ("success", "success")
    assert "building for arm" in "\n".join(jobs["build"]["log_tail"])
    assert (world.folder / "kept" / "cell").is_dir()
    # The same with options, which win.
    result = world.remuda("run", "--output=text", "--variable", "TARGET=riscv", "--job", "build", cwd=shop)
    assert result.code == 0, result.err
    assert "building for riscv" in result.out + result.err
    whole = world.remuda("run", "--output=text", cwd=shop).out.count("building for")
    assert world.remuda("run", "--logs=false", "--output=text", cwd=shop).out.count("building for") < whole


def test_a_foreign_repository_cannot_weaken_the_isolation(world: Any) -> None:
    shop = make_shop(world, "jobs = 2\nisolation = 'none'\n")
    for words in (("run",), ("run", "--list"), ("pipeline", "lint", shop)):
        result = world.remuda(*words, cwd=shop)
        assert result.code == 2
        assert f"{shop}/.remuda.toml:2: isolation: only your own settings may set this" in result.err
        assert "Traceback" not in result.err
    assert world.is_empty()


def test_pipeline_commands_use_the_files_too(world: Any) -> None:
    shop = make_shop(world, "file = 'ci/main.yml'\nevent = 'web'\nlogs = true\n")
    result = world.remuda("pipeline", "lint", shop)
    assert result.code == 0, result.err
    assert "For web on main: 2 jobs" in result.out
    assert "For a push of main: 2 jobs" in world.remuda("pipeline", "lint", shop, "--event", "push").out
    assert "ship" in world.remuda("pipeline", "show", shop).out
    assert "ship" in world.remuda("pipeline", "graph", shop).out


def test_the_pipeline_file_of_the_settings_belongs_to_the_repository(world: Any) -> None:
    shop = make_shop(world, "file = 'ci/main.yml'\n")
    Clone(shop, world.environment()).git("init", "--quiet", "--initial-branch=main")
    Clone(shop, world.environment()).commit()
    (shop / "ci" / "main.yml").write_text("include: ci/more.yml\n" + PIPELINE)
    (shop / "ci" / "more.yml").write_text("more: {script: [echo]}\n")
    for name in ("docs", "tool"):
        (shop / name).mkdir()
    (shop / "tool" / ".gitlab-ci.yml").write_text("tool: {script: [echo]}\n")
    for words in (("pipeline", "show"), ("run", "--list")):
        # From a subfolder, too.
        for cwd in (shop, shop / "docs"):
            assert "more" in world.remuda(*words, cwd=cwd).out
        # A folder with a pipeline file, and a file that is named, are meant themselves.
        for path in ("tool", "tool/.gitlab-ci.yml"):
            result = world.remuda(*words, path, cwd=shop)
            assert "tool" in result.out, result.err
            assert "more" not in result.out
    assert "more" not in world.remuda("run", "--list", "--file", "tool/.gitlab-ci.yml", cwd=shop).out
    assert world.remuda("run", "ship", "--list", cwd=shop / "docs").code == 0


def test_a_mistake_names_the_line_and_the_right_key(world: Any) -> None:
    shop = make_shop(world, "jobs = 2\nplay-manuel = true\n")
    result = world.remuda("run", shop)
    assert result.code == 2
    assert f'{shop}/.remuda.toml:2: there is no setting "play-manuel"; did you mean "play-manual"?' in result.err
    assert world.is_empty()


def test_the_help_names_the_files(world: Any) -> None:
    page = world.remuda("run", "--help").out
    assert ".remuda.toml" in page
    assert "~/.config/remuda/settings.toml" in page
