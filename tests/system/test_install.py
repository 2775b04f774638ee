"""Follows docs/how-to/install.md: each way of installing in a fresh Debian 12 and a fresh Ubuntu 24.04, then
`remuda run` in a repository, without and with containers, with the commands that the page shows."""

import base64
import hashlib
import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.machines.fresh_system import FreshSystem, install, make_debian, make_ubuntu
from tests.support.pages import read_blocks, script_of
from tests.support.servers.docker_engine import PROGRAMS

from remuda import __version__

MISSING = [program for program in ("debootstrap", *PROGRAMS) if shutil.which(program) is None]

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap needs root"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; make packages installs it"),
]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/install.md").read_text()
PLUGINS = ("docker-machine", "local", "static")


def find_block(text: str) -> str:
    """Return the only block of the page that contains `text`."""
    [block] = [block.text for block in read_blocks(PAGE) if text in block.text]
    return block


TRY = find_block("mkdir first")
TRY_CONTAINERS = find_block("image: busybox")
READ = f"""
remuda plugin list
{find_block("remuda docs run-settings")}
test -f "$(remuda docs run-settings | sed s,^file://,,)"
"""
ANSWER = "/tmp/docs.txt"
INSTALL_DOCS = f'sh -ec "$(tail -n 1 {ANSWER})"'
"""Does what `remuda docs` said."""
RUN_BOTH = f"start_engine\n{TRY}\n{TRY_CONTAINERS}\nremuda version\n"


def build(target: str, folder: Path, *suites: str) -> Path:
    words = [target, f"DIST={folder}", f"SUITES={' '.join(suites)}"]
    subprocess.run(["make", "--no-print-directory", *words], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder on a plain file system that other users can enter: the upper folder of an overlay cannot be one."""
    with tempfile.TemporaryDirectory(prefix="remuda-install-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def release(folder: Path) -> Path:
    return build("release", folder / "release", "bookworm:3.11", "noble:3.12")


@pytest.mark.parametrize("make_system", [make_debian, make_ubuntu])
def test_each_way_of_the_page_leads_to_a_pipeline_with_containers(
    make_system: Callable[[Path], FreshSystem], folder: Path, release: Path, subtests: pytest.Subtests
) -> None:
    system = make_system(folder)
    install(system, find_block("docker.io"))
    shutil.copy(Path(sys.prefix) / "bin" / "uv", system.root / "usr/bin/uv")
    clone = system.root / "root/remuda"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    ways = {
        "pipx": f"{follow_page()}\n{READ}\n{add_documentation('pipx')}",
        "uv": f"{install_with_uv()}\n{READ}\n{add_documentation('uv tool')}",
        "package": f"{install_package(system.suite)}\n{READ}",
        "clone": f"{set_up_clone()}\nremuda plugin list\n{find_no_docs('remuda')}\ngrep 'make docs' {ANSWER}",
    }
    for way, script in ways.items():
        with subtests.test(way):
            output = system.run(release, script)
            assert f"remuda {__version__}" in output
            assert output.count("pipeline success") == 2
            assert "hello from a service" in output
            assert [name for name in PLUGINS if f" {name} " not in output] == []
    with subtests.test("package: services"):
        output = system.run(release, start_service(system.suite))
        assert "glpat-" in output
    with subtests.test("package: removal"):
        system.run(release, remove_package(system.suite))
    with subtests.test("image"):
        output = system.run(release, use_image())
        assert output.count("pipeline success") == 2
        assert "hello from a service" in output
        assert "glpat-" in output


def find_no_docs(remuda: str) -> str:
    return f"if {remuda} docs 2> {ANSWER}; then exit 1; fi\ncat {ANSWER} >&2"


def add_documentation(tool: str) -> str:
    """Install again, without the documentation, and do what `remuda docs` says then."""
    return f"""
cd ~/files
{tool} uninstall remuda
{tool} install ./remuda-{__version__}-py3-none-any.whl
{find_no_docs("remuda")}
{INSTALL_DOCS}
test -f "$(remuda docs run-settings | sed s,^file://,,)"
"""


def follow_page() -> str:
    """The commands of the page from its beginning to its end, which install with pipx."""
    return f"start_engine\napt-get update -qq\napt-get install -qq pipx\n{script_of(PAGE)}"


def install_with_uv() -> str:
    return f'{find_block("uv tool install")}\nexport PATH="$HOME/.local/bin:$PATH"\n{RUN_BOTH}'


def install_package(suite: str) -> str:
    block = find_block("sudo apt install ./remuda").replace("bookworm", suite)
    return f"apt-get update -qq\n{block}\n{RUN_BOTH}"


def set_up_clone() -> str:
    block = find_block("make setup ")
    return f"apt-get update -qq\ncd ~/remuda\n{block}\ncd ~/files\n{RUN_BOTH}"


def start_service(suite: str) -> str:
    """The units of the package, with the network of another machine: something may listen on the port here."""
    commands = f"""
set -eux
sudo() {{ "$@"; }}
journalctl() {{ cat /run/page/tmp/$2.journal; }}
ip link set lo up
{find_block("systemctl enable")}
until journalctl --unit remuda-cell | grep glpat-; do sleep 0.2; done
python3 -c 'import urllib.request; urllib.request.urlopen("http://127.0.0.1:8929/-/health")'
test "$(stat -c %U /proc/$(cat /run/page/tmp/remuda-cell.service-pid))" = remuda
systemctl start remuda-cell-backup
ls /var/backups/remuda/*.tar.gz
systemctl stop remuda-cell
"""
    begin = install_package(suite).partition("start_engine")[0]
    return f"{begin}\ncp /systemctl /usr/local/bin\nunshare --net bash -c {shlex.quote(commands)}"


def remove_package(suite: str) -> str:
    checks = (
        "getent passwd remuda",
        'test "$(stat -c %U:%G:%a /etc/remuda/cell.toml)" = root:remuda:640',
        "remuda cell check --help >/dev/null",
        "su -s /bin/sh remuda -c 'remuda version'",
        "test -f /usr/lib/systemd/system/remuda-cell.service -a -f /usr/lib/systemd/system/remuda-manager.service",
        "cd /",
        "apt-get remove -qq remuda",
        "test ! -e /usr/bin/remuda -a ! -e /usr/lib/remuda -a ! -e /usr/share/doc/remuda -a -f /etc/remuda/cell.toml",
        "apt-get purge -qq remuda",
        "test ! -e /etc/remuda",
    )
    return "\n".join((install_package(suite).partition("start_engine")[0], *checks))


def use_image() -> str:
    plain = find_block('docker run --rm --volume "$PWD:/work:ro" remuda')
    with_engine = find_block("/var/run/docker.sock:/var/run/docker.sock")
    serve = find_block("cell serve").replace("docker run", "docker run --detach --name cell")
    parts = (
        "start_engine",
        find_block("docker load"),
        find_no_docs(f"docker run --rm remuda:{__version__}"),
        INSTALL_DOCS,
        "test -f docs/remuda_docs/html/index.html",
        TRY.replace("remuda run\n", plain),
        TRY_CONTAINERS.replace("remuda run\n", with_engine),
        serve,
        "until docker logs cell 2>&1 | grep glpat-; do sleep 0.2; done",
    )
    return "\n".join(parts)


def test_two_builds_have_the_same_bytes(folder: Path, release: Path) -> None:
    again = build("packages-deb", folder / "again", "bookworm:3.11")
    names = sorted(path.name for path in again.iterdir())
    assert f"remuda_{__version__}-1+bookworm_amd64.deb" in names
    assert [name for name in names if (again / name).read_bytes() != (release / name).read_bytes()] == []


def test_a_build_does_not_change_the_environment_that_it_runs_in(release: Path) -> None:
    files = importlib.metadata.files("msgspec") or []
    [core] = [file for file in files if file.name.startswith("_core.") and file.suffix == ".so"]
    assert core.hash is not None
    digest = base64.urlsafe_b64encode(hashlib.sha256(core.read_binary()).digest()).rstrip(b"=")
    assert digest.decode() == core.hash.value
