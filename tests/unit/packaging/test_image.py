"""The script that makes the image, with programs that stand for those which need root rights and the network."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
MKTEMP = """#!/bin/sh
made=$({mktemp} "$@")
ln -s {victim} "$made.log"
echo "$made"
"""


def test_the_log_of_debootstrap_follows_no_link_of_another_user(tmp_path: Path) -> None:
    victim, programs, temporary = tmp_path / "victim", tmp_path / "bin", tmp_path / "tmp"
    victim.write_text("precious")
    programs.mkdir()
    temporary.mkdir()
    scripts = {
        "id": "#!/bin/sh\necho 0\n",
        "umount": "#!/bin/sh\n",
        "debootstrap": "#!/bin/sh\necho there is no mirror\nexit 1\n",
        "mktemp": MKTEMP.format(mktemp=shutil.which("mktemp"), victim=victim),
    }
    for name, script in scripts.items():
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["sh", ROOT / "tools/release/image", "none.deb", "1", tmp_path / "image.tar"],
        env={"PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "there is no mirror\n")
    assert victim.read_text() == "precious"
    # The links of the other user are all that is left.
    assert all(path.is_symlink() for path in temporary.iterdir())
