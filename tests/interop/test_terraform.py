"""OpenTofu, the free fork of Terraform, with GitLab's provider describes what a cell has: a plan after each apply finds
no difference."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.built_programs import require_built
from tests.support.cells.served_cell import ServedCell, commit_file

BUILD = Path(__file__).parents[2] / "build" / "interop"
PROGRAM, PROVIDER = BUILD / "tofu", BUILD / "terraform-provider-gitlab"
CONFIGURATIONS = Path(__file__).parent / "terraform-provider"
API_CLIENTS = Path(__file__).parents[2] / "docs" / "reference" / "generated" / "api-clients.md"
VERSION = "1.3.0"
NO_CHANGE, CHANGES = 0, 2
"""Exit codes of `tofu plan -detailed-exitcode`."""
FIRST, SECOND = ("-var=round=1",), ("-var=round=2",)


class Terraform:
    """OpenTofu in a folder with a configuration. It gets the provider from a folder, never from a registry."""

    def __init__(self, cell: ServedCell, folder: Path, configuration: str) -> None:
        require_built(PROGRAM)
        require_built(PROVIDER)
        self._folder = folder / "configuration"
        self._folder.mkdir()
        shutil.copy(CONFIGURATIONS / configuration, self._folder)
        mirror = folder / "mirror"
        settings = folder / "tofu.rc"
        settings.write_text(f'provider_installation {{\n  filesystem_mirror {{ path = "{mirror}" }}\n}}\n')
        self._variables = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "TF_CLI_CONFIG_FILE": str(settings),
            "TF_IN_AUTOMATION": "1",
            "GITLAB_TOKEN": cell.token,
            "GITLAB_BASE_URL": f"{cell.url}/api/v4/",
        }
        platform = json.loads(self.run("version", "-json"))["platform"]
        place = mirror / "registry.opentofu.org" / "gitlabhq" / "gitlab" / VERSION / platform
        place.mkdir(parents=True)
        shutil.copy(PROVIDER, place / f"terraform-provider-gitlab_v{VERSION}")
        self.run("init", "-no-color", "-input=false")

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(PROGRAM), *words],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            cwd=self._folder,
            env=self._variables,
        )

    def run(self, *words: str) -> str:
        """Run a command, which must succeed. Returns its output."""
        done = self.call(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def apply(self, *words: str) -> None:
        self.run("apply", "-no-color", "-input=false", "-auto-approve", *words)

    def take_up(self, address: str, number: str) -> None:
        """Forget a resource, and import the object with this id as the same resource again."""
        self.run("state", "rm", "-no-color", address)
        self.run("import", "-no-color", "-input=false", *SECOND, address, number)

    def check_plan(self, expected: int, *words: str) -> None:
        """Check that a plan finds changes, or finds none."""
        done = self.call("plan", "-no-color", "-input=false", "-detailed-exitcode", *words)
        assert done.returncode == expected, (done.stdout, done.stderr)

    def outputs(self) -> dict[str, Any]:
        return {name: output["value"] for name, output in json.loads(self.run("output", "-json")).items()}


@pytest.mark.timeout(600)
def test_life_of_a_configuration(cell: ServedCell, tmp_path: Path) -> None:
    terraform = Terraform(cell, tmp_path, "main.tf")
    terraform.apply(*FIRST)
    ids = terraform.outputs()["ids"]
    check_objects(cell, terraform, 1)
    terraform.check_plan(NO_CHANGE, *FIRST)

    # The second round makes the other branch the default branch.
    commit_file(cell, ids["press"], "first")
    commit_file(cell, ids["press"], "other", path="other", branch="stable", start_branch="main")
    terraform.check_plan(CHANGES, *SECOND)
    terraform.apply(*SECOND)
    assert terraform.outputs()["ids"] == ids, "something was replaced"
    check_objects(cell, terraform, 2)
    terraform.check_plan(NO_CHANGE, *SECOND)

    terraform.take_up("gitlab_project.press", ids["press"])
    terraform.take_up("gitlab_group.inner", ids["inner"])
    terraform.take_up("gitlab_project_variable.key", f"{ids['press']}:KEY")
    terraform.check_plan(NO_CHANGE, *SECOND)

    # What somebody else has changed is found and put right.
    assert cell.api("DELETE", f"/projects/{ids['press']}/variables/KEY").status == 204
    terraform.check_plan(CHANGES, *SECOND)
    terraform.apply(*SECOND)
    check_objects(cell, terraform, 2)

    terraform.run("destroy", "-no-color", "-input=false", "-auto-approve", *SECOND)
    assert cell.api("GET", "/projects").json() == []
    assert cell.api("GET", "/groups").json() == []
    assert [user["username"] for user in cell.api("GET", "/users").json()] == ["root"]


def check_objects(cell: ServedCell, terraform: Terraform, number: int) -> None:
    """Check that the cell has what the configuration says in this round, and that the data sources have found it."""
    ids, is_second = terraform.outputs()["ids"], number == 2
    top, press, user = f"/groups/{ids['top']}", f"/projects/{ids['press']}", ids["user"]
    wider = "internal" if is_second else "private"

    def check(path: str, /, **fields: object) -> None:
        shown = cell.api("GET", path).json()
        assert {name: shown.get(name, "no such field") for name in fields} == fields

    text = f"round {number}"
    check(top, name=f"Plant {number}", path="plant", description=text, visibility=wider, parent_id=None)
    check(f"/groups/{ids['inner']}", name=f"Line {number}", parent_id=int(ids["top"]), full_path="plant/line")
    check(press, name=f"Press {number}", path_with_namespace=f"plant/line/press-{number}", description=text)
    check(press, visibility=wider, default_branch="stable" if is_second else "main")
    assert sorted(cell.api("GET", press).json()["topics"]) == (["robots", "steel"] if is_second else ["steel"])
    check(f"/projects/{ids['own']}", path_with_namespace="root/own", visibility="private")
    variable = {"key": "KEY", "protected": is_second, "environment_scope": "*", "variable_type": "env_var"}
    check(f"{press}/variables/KEY", value=f"value {number}", **variable)
    check(f"{top}/variables/KEY", value=f"group value {number}", **variable)
    check(f"{press}/triggers/{ids['trigger']}", description=text)
    events = {"push_events": is_second, "job_events": is_second, "pipeline_events": not is_second}
    hook = f"{press}/hooks/{ids['hook']}"
    check(hook, url=f"https://hooks.example.com/{number}", tag_push_events=True, **events)
    check(hook, enable_ssl_verification=not is_second)
    rule = cell.api("GET", f"{press}/protected_branches/release-*").json()
    levels = [[level["access_level"] for level in rule[f"{kind}_access_levels"]] for kind in ("push", "merge")]
    assert levels == [[0 if is_second else 40], [30]]
    check(f"/users/{user}", username="welder", name=f"Welder {number}", email="welder@example.com", is_admin=is_second)
    check(f"{top}/members/{user}", access_level=30 if is_second else 20, expires_at=f"2099-01-0{number}")
    check(f"{press}/members/{user}", access_level=40 if is_second else 30, expires_at=None)
    found = {"by_name": "welder@example.com", "by_mail": "welder", "users": ["welder"], "blocked": []}
    assert terraform.outputs()["found"] == {"project": f"press-{number}", **found}


def test_what_a_cell_does_not_have_is_said(cell: ServedCell, tmp_path: Path) -> None:
    """Such a resource fails and is not stored: it does not seem to exist. The list of absent calls has it."""
    terraform = Terraform(cell, tmp_path, "absent.tf")
    project = cell.new_project("app")
    done = terraform.call("apply", "-no-color", "-input=false", "-auto-approve", f"-var=project={project}")
    assert done.returncode == 1
    refused = set(re.findall(r"/projects/\d+/(\w+)\S*: 404", re.sub(r"\s*\n\s*", " ", done.stderr)))
    assert refused == {"labels", "deploy_keys", "clusters", "services", "share"}, done.stderr
    assert terraform.run("state", "list") == ""
    absent = API_CLIENTS.read_text().partition("## Absent")[2]
    assert [name for name in refused if f"`projects/:id/{name}`" not in absent] == []
