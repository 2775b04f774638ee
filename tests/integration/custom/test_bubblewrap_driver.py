"""Drivers that put the scripts somewhere: a bubblewrap with a file system of its own, a script through a pipe."""

from tests.support.runners.custom_driver import Bench

BUBBLEWRAP = """#!/bin/bash
set -e
echo "run $3" >>"$CALLS"
inner="$TMPDIR/root"
[ "$3" = prepare_script ] && mkdir -p "$inner/builds"
code=0
bwrap --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 \\
  --ro-bind /etc /etc --proc /proc --dev /dev --tmpfs /tmp --bind "$inner/builds" /builds \\
  --unshare-pid --unshare-ipc --die-with-parent --clearenv --setenv PATH /usr/bin:/bin --setenv HOME /tmp \\
  --chdir / bash <"$2" || code=$?
[ "$code" = 0 ] || { echo "$code" >"$BUILD_EXIT_CODE_FILE"; exit "$BUILD_FAILURE_EXIT_CODE"; }
"""
CONFIG = '#!/bin/sh\necho \'{"builds_dir": "/builds", "cache_dir": "/builds/cache", "hostname": "bubble"}\'\n'


async def test_scripts_need_nothing_of_this_machine(bench: Bench) -> None:
    bench.driver.write("run", BUBBLEWRAP)
    bench.driver.write("config", CONFIG)
    variables = [
        {"key": "KEY", "value": "content", "file": True},
        {"key": "WORD", "value": "a 'b' $$c", "masked": True},
    ]
    seen = await bench.run(
        "pwd", "cat file", 'cat "$KEY"; echo', 'echo "${#WORD}"', "ls /work 2>/dev/null || echo outside is not seen",
        variables=variables,
    )  # fmt: skip
    assert seen.check().status == "success", seen.log.decode()
    assert [line for line in seen.lines if not line.startswith(b"\x1b")][-5:] == [
        b"/builds/group/project",
        b"version 1",
        b"content",
        b"8",
        b"outside is not seen",
    ]
    failed = await bench.run("exit 42")
    assert failed.check().exit_code == 42
