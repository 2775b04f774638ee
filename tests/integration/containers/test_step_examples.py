"""Steps as the documentation shows them, from `run` in a pipeline file through a cell and a manager: in a shell, in a
sandbox, as a user of a slot, and in containers. Steps from repositories and images have files of their own."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.manager_harness import ManagerHarness
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine
from tests.support.servers.step_server import StepServer, run_step_server
from tests.support.step_packages import (
    STEP_LAYER,
    Project,
    StepRegistry,
    a_layer,
    has_registry,
    step_registry,
    zstd,
)

from remuda.steps.policy import sandbox

GREET = """
spec:
  inputs:
    name: {type: string}
    word: {type: string, default: hello}
  outputs:
    message: {type: string}
---
env: {PUNCTUATION: "!"}
exec:
  command: ["${{ step_dir }}/greet.sh", "${{ inputs.word }}", "${{ inputs.name }}", "${{ output_file }}"]
"""
GREET_PROGRAM = """#!/bin/sh
printf '{"name": "message", "value": "%s"}\\n' "$1 $2$PUNCTUATION $(cat "${0%/*}/signature.txt")" >>"$3"
"""
COMPOSE = """
spec:
  inputs: {name: {type: string}}
  outputs: {text: {type: string}, count: {type: number}}
---
run:
  - name: first
    step: ../greet
    inputs: {name: "${{ inputs.name }}"}
  - name: count
    step: ./count
    inputs: {text: "${{ steps.first.outputs.message }}"}
  - name: show
    script: cat ${{ step_dir }}/notes.txt
outputs:
  text: "${{ steps.first.outputs.message }}"
  count: "${{ steps.count.outputs.count }}"
"""
COUNT = """
spec:
  inputs: {text: {type: string}}
  outputs: {count: {type: number}}
---
exec:
  work_dir: ${{ step_dir }}
  command: [sh, ./count.sh, "${{ inputs.text }}", "${{ output_file }}"]
"""
COUNT_PROGRAM = """
printf '{"name": "count", "value": %s}\\n' "$(printf %s "$1" | wc -c)" >>"$2"
"""
DELEGATE = """
spec:
  inputs: {name: {type: string}}
  outputs: delegate
---
run:
  - name: inner
    step: ../greet
    inputs: {name: "${{ inputs.name }}", word: good morning}
delegate: inner
"""
PROTECTED = """
spec: {}
---
exec:
  command:
    - sh
    - -c
    - |
      ! echo changed >>"$1/func.yml" || exit 3
      ! touch "$1/new" || exit 4
      ! chmod u+w "$1" || exit 5
      ! rm "$1/func.yml" || exit 6
      echo "protected: $(ls "$1")"
    - sh
    - ${{ step_dir }}
"""
EXPORT = """
spec: {}
---
exec:
  command: [sh, "${{ func_dir }}/export.sh", "${{ export_file }}"]
"""
IMAGE_STEP = """
spec:
  outputs: {checked: {type: boolean}}
---
exec:
  command: ["${{ func_dir }}/bin/check", "${{ output_file }}"]
"""
ACTION = """
spec:
  inputs:
    options: {type: struct, default: {}}
    files: {type: array, default: []}
    strict: {type: boolean, default: false}
  outputs:
    report: {type: struct}
---
exec:
  command:
    - sh
    - ${{ func_dir }}/action.sh
    - ${{ inputs.options.level }}
    - ${{ str(inputs.strict) }}
    - ${{ inputs.files[1] }}
    - ${{ output_file }}
"""
ACTION_PROGRAM = """
printf '{"name": "report", "value": {"level": "%s", "strict": %s, "second": "%s"}}\\n' "$1" "$2" "$3" >>"$4"
"""
LOCAL = """
spec:
  inputs: {file: {type: string}}
  outputs: {size: {type: number}}
---
exec:
  command: [sh, "${{ step_dir }}/size.sh", "${{ inputs.file }}", "${{ output_file }}"]
"""
FILES = {
    "steps/greet/step.yml": GREET,
    "steps/greet/greet.sh": GREET_PROGRAM,
    "steps/greet/signature.txt": "from the repository",
    "steps/compose/func.yml": COMPOSE,
    "steps/compose/notes.txt": "notes of the composed step\n",
    "steps/compose/count/func.yml": COUNT,
    "steps/compose/count/count.sh": COUNT_PROGRAM,
    "steps/delegate/func.yml": DELEGATE,
    "steps/protected/func.yml": PROTECTED,
    "steps/action/func.yml": ACTION,
    "steps/action/action.sh": ACTION_PROGRAM,
    "steps/export/func.yml": EXPORT,
    "steps/export/export.sh": 'printf \'{"name": "CHANNEL", "value": "stable"}\\n\' >>"$1"\n',
}
MODES = (
    *("shell", "sandbox", "slot user", "slot user and sandbox"),
    *("docker", "docker with another user", "docker with a service"),
)
SERVICE = {"name": BUSYBOX, "alias": "web", "command": ["sleep", "1000"]}


def pipeline(git: str, registry: str, image: dict[str, Any] | None, *, has_service: bool) -> str:
    """Return a pipeline file with the examples. `git`: address of the repository of steps."""
    examples = [
        {"name": "greet", "step": f"{git}/-/greet@v1", "inputs": {"name": "Ada"}, "env": {"PUNCTUATION": "?"}},
        {"name": "show", "script": "echo ${{ steps.greet.outputs.message }}"},
        {"name": "composed", "step": f"{git}/-/compose@main", "inputs": {"name": "${{ vars.PERSON }}"}},
        {"name": "delegated", "func": {"git": {"url": git, "rev": "v1", "dir": "steps/delegate"}}}
        | {"inputs": {"name": "Eve"}},
        {"name": "action", "step": f"{git}/-/action@v1"}
        | {"inputs": {"options": {"level": "high"}, "files": ["a", "${{ vars.PERSON }}"], "strict": True}},
        {"name": "image", "step": f"{registry}/tools/check:1.0"},
        {"name": "local", "step": "./ci/size", "inputs": {"file": "file.txt"}},
        {"name": "export", "step": f"{git}/-/export@v1"},
        {"name": "exported", "script": 'echo "channel $CHANNEL in $PLACE"', "env": {"PLACE": "${{ vars.PERSON }}"}},
    ]
    protected = [{"name": "protected", "step": f"{git}/-/protected@v1"}]
    common: dict[str, Any] = {"variables": {"PERSON": "Bob"}} | ({"image": image} if image else {})
    common |= {"services": [SERVICE]} if has_service else {}
    return json.dumps({"examples": common | {"run": examples}, "protected": common | {"run": protected}})


@pytest.fixture
def step_server(tmp_path: Path) -> Iterator[StepServer]:
    with run_step_server(tmp_path / "served") as server:
        yield server


@pytest.fixture
def git_steps(step_server: StepServer, tmp_path: Path) -> str:
    """Return the address of a repository with the steps."""
    project = Project.new(step_server, tmp_path / "steps", "group/steps.git")
    (project.work / "steps/greet").mkdir(parents=True)
    (project.work / "steps/greet/greet.sh").touch(mode=0o755)
    project.commit(files=FILES)
    project.push("HEAD:refs/tags/v1")
    return project.address


@pytest.fixture
def image_steps(tmp_path: Path) -> Iterator[StepRegistry]:
    """Run a registry with a step in an image whose files only their owner may read."""
    if not has_registry():
        pytest.skip("docker-registry is not installed: make packages")
    program = '#!/bin/sh\nprintf \'{"name": "checked", "value": true}\\n\' >>"$1"\n'
    layer = zstd(a_layer({"func.yml": (IMAGE_STEP, 0o400), "bin/check": (program, 0o500)}))
    with step_registry(tmp_path / "registry") as registry:
        image = registry.image("tools/check", layer, media_type=STEP_LAYER)
        registry.index("tools/check", "1.0", linux_amd64=image)
        yield registry


@pytest.fixture
async def harness(public_folder: Path, cell: ServedCell) -> AsyncIterator[ManagerHarness]:
    harness = ManagerHarness(public_folder, cell)
    yield harness
    await harness.close()


def configure(harness: ManagerHarness, mode: str, request: pytest.FixtureRequest) -> dict[str, Any] | None:
    """Write the manager's configuration for a mode; return the `image` of the jobs. Skips where it is impossible."""
    if mode.startswith("docker"):
        engine: DockerEngine = request.getfixturevalue("engine")
        docker = f'[runners.docker]\nhost = "{engine.host}"\npull_policy = "never"\n'
        harness.write_config(executor="docker", extra=docker)
        return {"name": BUSYBOX} | ({"docker": {"user": "1234"}} if "user" in mode else {})
    if "user" in mode and os.geteuid() != 0:
        pytest.skip("only root can run jobs as other users")
    if "sandbox" in mode and (why := sandbox.problem()) is not None:
        pytest.skip(f"no sandbox here: {why}")
    own = ["sandbox = true"] * ("sandbox" in mode) + ["first_uid = 123456"] * ("user" in mode)
    harness.write_config(extra="\n".join(["[runners.remuda]", *own]) if own else "")
    return None


@pytest.mark.parametrize("mode", MODES)
async def test_examples_run(
    mode: str,
    cell: ServedCell,
    harness: ManagerHarness,
    git_steps: str,
    image_steps: StepRegistry,
    request: pytest.FixtureRequest,
) -> None:
    image = configure(harness, mode, request)
    files = {
        "file.txt": "12345",
        "ci/size/step.yml": LOCAL,
        "ci/size/size.sh": 'printf \'{"name": "size", "value": %s}\\n\' "$(wc -c <"$1")" >>"$2"\n',
    }
    cell.new_project("app", pipeline(git_steps, image_steps.host, image, has_service="service" in mode), **files)
    async with harness.manager():
        jobs = await cell.wait_for_jobs(seconds=150)
    job = jobs["examples"]
    assert job["status"] == "success", job["log"]
    place = "/container/" if image else "/"
    outputs = {path.removeprefix(place): step.get("outputs") for path, step in job["steps"].items()}
    assert outputs["greet"] == {"message": "hello Ada! from the repository"}
    assert outputs["composed"] == {"text": "hello Bob! from the repository", "count": 30}
    assert outputs["delegated"] == {"message": "good morning Eve! from the repository"}
    assert outputs["action"] == {"report": {"level": "high", "strict": True, "second": "Bob"}}
    assert outputs["image"] == {"checked": True}
    assert outputs["local"] == {"size": 5}
    for line in ("hello Ada! from the repository", "notes of the composed step", "channel stable in Bob"):
        assert f"{line}\n" in job["log"]
    if mode != "shell":
        # Without isolation, a manager that is root can change everything.
        assert jobs["protected"]["status"] == "success", jobs["protected"]["log"]
        assert "protected: func.yml\n" in jobs["protected"]["log"]
