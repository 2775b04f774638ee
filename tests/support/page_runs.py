"""Executes a page of the documentation on a machine of its own: namespaces for mounts, processes and the network, with
writable layers over /etc, /home, /opt, /root, /srv, /usr/local and /var, and an empty /run.

So a page may use the paths, ports, users and names of hosts that its reader uses, and whatever it starts ends with it.
The real systemctl has no systemd to talk to; `page_machine/systemctl` stands in for it. Needs root.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.support.pages import script_of

ROOT = Path(__file__).parents[2]
MACHINE = Path(__file__).parent / "page_machine"
LAYERS = ("/etc", "/home", "/opt", "/root", "/srv", "/usr/local", "/var")
_SETUP = """set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs /run
for folder in {layers}; do
    layer=/run/page/layers$folder
    mkdir -p $layer/upper $layer/work
    mount -t overlay overlay -o lowerdir=$folder,upperdir=$layer/upper,workdir=$layer/work $folder
done
mkdir -p /run/page/tmp /run/page/bin /home/you
chmod 1777 /run/page/tmp
ip link set lo up
ln -s {systemctl} /run/page/bin/systemctl
ln -sf {remuda} /usr/local/bin/remuda
export PATH=/run/page/bin:$PATH HOME=/home/you TMPDIR=/run/page/tmp
cd
exec bash {script}
"""


def run_page(page: Path, stage: Path, work: Path, *, within_seconds: float) -> subprocess.CompletedProcess[str]:
    """Execute the page after its stage, a bash script with what the reader already has, if that file exists."""
    name = str(page.relative_to(ROOT))
    script = work / "page.sh"
    parts = [f"source {shlex.quote(str(MACHINE / 'prelude.sh'))}\n"]
    if stage.exists():
        parts.append(f"echo '== {stage.name}' >&2\n{stage.read_text()}")
    script.write_text("".join([*parts, script_of(page.read_text(), name), "\necho '== the page is at its end'\n"]))
    program = Path(sys.executable).parent
    setup = _SETUP.format(
        layers=" ".join(LAYERS),
        systemctl=shlex.quote(str(MACHINE / "systemctl")),
        remuda=shlex.quote(str(program / "remuda")),
        script=shlex.quote(str(script)),
    )
    dropped = ("GIT_", "REMUDA_", "CI", "XDG_", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    environment |= {"PAGE_MACHINE": str(MACHINE), "REPOSITORY": str(ROOT)}
    environment |= {"PATH": f"{program}:/usr/local/sbin:/usr/sbin:/sbin:{os.environ['PATH']}"}
    return subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", setup],
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_seconds,
        check=False,
    )
