"""What the tests of the cell's own pages (overview, queue, runners, admin) share: projects, and names that attack."""

from typing import Any

from tests.support.browser import PHONE_WIDTH, Tab
from tests.support.cells.served_cell import FEATURES, ScriptedRunner, ServedCell

PIPELINE = """
stages: [build, deploy]
build: {stage: build, script: make, parallel: 3}
gpu: {stage: build, tags: [gpu, linux], script: train}
deploy: {stage: deploy, script: deploy}
"""
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "\u202eevil\u202c \x07\x1b[31m",
    "{{ 7 * 7 }}${7*7}",
    "w" * 300,
)


def start_pipeline(cell: ServedCell, name: str = "app", pipeline_file: str = PIPELINE) -> int:
    """Create a project with a pipeline. Returns the project's id."""
    project = cell.new_project(name, pipeline_file)
    cell.until_pipelines(1, f"root/{name}")
    return project


def take_job(runner: ScriptedRunner) -> dict[str, Any]:
    """Let a manager with four slots take a job."""
    return runner.take(info={"config": {"capacity": 4}, "version": "17.5.0", "executor": "shell", "features": FEATURES})


def check_look(tab: Tab, *addresses: str) -> None:
    """Check pages in light and dark, with a wide and a narrow window."""
    for address in addresses:
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme=scheme)
            for width in (1280, PHONE_WIDTH):
                tab.page.set_viewport_size({"width": width, "height": 900})
                tab.page.goto(address)
                tab.check_accessibility()
                tab.check_width()
    tab.page.emulate_media(color_scheme="light")
    tab.page.set_viewport_size({"width": 1280, "height": 900})
