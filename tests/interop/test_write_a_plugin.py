"""Runs the commands of the Go part of docs/how-to/write-a-plugin.md; upstream's dummy plugin passes the same checks."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.built_programs import require_built
from tests.support.pages import script_of

from remuda.cli.main import call
from remuda.testing.lab import processes

ROOT = Path(__file__).parents[2]
DUMMY = ROOT / "build/interop/fleeting-plugin-dummy"


@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
@pytest.mark.timeout(600)
def test_a_plugin_in_go(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/write-a-plugin.md").read_text().partition("\n## In Go\n")[2]
    go = {name: subprocess.check_output(["go", "env", name], text=True).strip() for name in ("GOMODCACHE", "GOCACHE")}
    environment = os.environ | go | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "FLEETING_PLUGIN_PATH": str(tmp_path / "plugins"),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script_of(page)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("All checks passed") == 3
    assert "ok      can be logged in to" in done.stdout
    assert "note" not in done.stdout
    assert (tmp_path / "plugins/registry.gitlab.com/gitlab-org/fleeting/plugins/cloud/0.1.0/plugin").exists()
    assert not [words for _, words in processes() if any(str(tmp_path) in word for word in words)]


def test_the_dummy_plugin_passes_the_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_built(DUMMY)
    config = tmp_path / "dummy.json"
    config.write_text(json.dumps({"MaxSize": 5, "ListenSSH": True, "SimulateDeleting": True}))
    # Its instances never reach the state running.
    call(["plugin", "check", str(DUMMY), "--config", str(config), "--boot-seconds", "0", "--output", "json"])
    report = json.loads(capsys.readouterr().out)
    assert report["passed"]
    noted = [check["name"] for check in report["checks"] if check["outcome"] == "noted"]
    assert noted == ["instances start", "remembers its instances"]
