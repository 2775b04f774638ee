"""Follows docs/how-to/install.md: each way of installing in a fresh Debian 12, then `remuda run` in a repository, with
the commands that the page shows. The machine is a folder made by debootstrap; each way gets an overlay of it."""

import base64
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.pages import read_blocks, script_of
from tests.support.servers.docker_engine import DockerEngine

from remuda import __version__

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("debootstrap") is None, reason="needs root and debootstrap"),
]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/install.md").read_text()
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
ENTER = """
set -eu
machine=$1
mount -t overlay overlay -o lowerdir=$2,upperdir=$machine/upper,workdir=$machine/work $machine/root
mount -t proc proc $machine/root/proc
mount --rbind /dev $machine/root/dev
mount --bind $3 $machine/root/files
exec chroot $machine/root bash /script
"""
BEGIN = """
set -eux
export DEBIAN_FRONTEND=noninteractive
sudo() { "$@" --yes; }
mkdir /root/files
cp -r /files/. /root/files
cd /root/files
"""


def find_block(text: str) -> str:
    """Return the only block of the page that contains `text`."""
    [block] = [block.text for block in read_blocks(PAGE) if text in block.text]
    return block


TRY = find_block("mkdir first")


def build(target: str, folder: Path) -> Path:
    """Build for Debian 12 alone: the packages of the other suites differ from it in the version of Python."""
    words = [target, f"DIST={folder}", "SUITES=bookworm:3.11"]
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
    return build("packages-deb", folder / "release")


@pytest.fixture(scope="module")
def debian(folder: Path) -> Path:
    """A Debian 12 with what a server has, git included: every way says that it needs git."""
    root = folder / "debian"
    command = ["debootstrap", "--variant=minbase", "--include=ca-certificates,git,python3", "bookworm", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    (root / "files").mkdir()
    for path in (CERTIFICATES, Path("/etc/resolv.conf")):
        if path.exists():
            target = root / path.relative_to("/")
            target.unlink(missing_ok=True)
            shutil.copy(path, target)
    return root


def run_in(debian: Path, release: Path, script: str) -> str:
    """Run a script as root in a fresh copy of the machine, in a folder with the files of the release."""
    with tempfile.TemporaryDirectory(prefix="machine-", dir=debian.parent) as name:
        machine = Path(name)
        for part in ("upper", "work", "root"):
            (machine / part).mkdir()
        (machine / "upper" / "script").write_text(f"{BEGIN}{script}")
        # How this machine reaches the package index, too.
        settings = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
        settings |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        settings.pop("PIP_FIND_LINKS", None)
        path = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        environment = {**settings, "HOME": "/root", "LANG": "C.UTF-8", "PATH": path}
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER, "enter"]
        done = subprocess.run(
            [*command, str(machine), str(debian), str(release)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n---- stderr\n{done.stderr[-5000:]}"
        return done.stdout


def test_the_commands_of_the_page_install_with_pipx(debian: Path, release: Path) -> None:
    get_pipx = "apt-get update -qq\napt-get install -yqq pipx"
    output = run_in(debian, release, f"{get_pipx}\n{script_of(PAGE)}\nremuda plugin list")
    assert f"remuda {__version__}" in output
    assert "pipeline success" in output
    assert [name for name in ("docker-machine", "local", "static") if f" {name} " not in output] == []


def test_uv_installs_the_wheels(debian: Path, release: Path) -> None:
    shutil.copy(Path(sys.prefix) / "bin" / "uv", debian / "usr/bin/uv")
    path = 'export PATH="$HOME/.local/bin:$PATH"'
    output = run_in(debian, release, f"{find_block('uv tool install')}\n{path}\n{TRY}\nremuda plugin list")
    assert "pipeline success" in output
    assert [name for name in ("docker-machine", "local", "static") if f" {name} " not in output] == []


def test_the_debian_package_installs_and_leaves_nothing_but_data(debian: Path, release: Path) -> None:
    checks = (
        "getent passwd remuda",
        'test "$(stat -c %U:%G:%a /etc/remuda/cell.toml)" = root:remuda:640',
        "remuda cell check --help >/dev/null",
        "su -s /bin/sh remuda -c 'remuda version'",
        "test -f /usr/lib/systemd/system/remuda-cell.service -a -f /usr/lib/systemd/system/remuda-manager.service",
        "cd /",
        "remuda plugin list",
        "apt-get remove -yqq remuda",
        "test ! -e /usr/bin/remuda -a ! -e /usr/lib/remuda -a -f /etc/remuda/cell.toml",
        "apt-get purge -yqq remuda",
        "test ! -e /etc/remuda",
    )
    script = "\n".join(("apt-get update -qq", find_block("+bookworm_amd64.deb"), TRY, *checks))
    output = run_in(debian, release, script)
    assert "pipeline success" in output
    assert [name for name in ("docker-machine", "local", "static") if f" {name} " not in output] == []


@pytest.mark.skipif(bool(DockerEngine.missing()), reason=DockerEngine.missing() or "there is an engine")
def test_the_image_runs_a_pipeline(release: Path, tmp_path: Path) -> None:
    image = release / f"remuda-{__version__}-image-amd64.tar"
    package = release / f"remuda_{__version__}-1+bookworm_amd64.deb"
    subprocess.run([ROOT / "tools/release/image", package, __version__, image], check=True)
    with DockerEngine() as engine:
        # Only root may use the engine's network; a container of a test needs none.
        prelude = f'docker() {{ command docker -H "{engine.host}" "$@"; }}\nset -eu\nPATH={ROOT}/.venv/bin:$PATH\n'
        commands = find_block("docker load").replace("--rm", "--rm --network none")
        repository = TRY.replace("remuda run", f"ln -s {image} .\n{commands}")
        done = subprocess.run(
            ["bash", "-c", f"{prelude}{repository}"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n---- stderr\n{done.stderr[-5000:]}"
    assert "pipeline success" in done.stdout


def test_two_builds_have_the_same_bytes(folder: Path, release: Path) -> None:
    again = build("packages-deb", folder / "again")
    names = sorted(path.name for path in again.iterdir())
    assert f"remuda_{__version__}-1+bookworm_amd64.deb" in names
    assert [name for name in names if (again / name).read_bytes() != (release / name).read_bytes()] == []


def test_a_build_does_not_change_the_environment_that_it_runs_in(release: Path) -> None:
    files = importlib.metadata.files("msgspec") or []
    [core] = [file for file in files if file.name.startswith("_core.") and file.suffix == ".so"]
    assert core.hash is not None
    digest = base64.urlsafe_b64encode(hashlib.sha256(core.read_binary()).digest()).rstrip(b"=")
    assert digest.decode() == core.hash.value
