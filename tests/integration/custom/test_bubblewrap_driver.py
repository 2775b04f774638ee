"""A driver that runs scripts in bubblewrap, with another file system and the script on stdin."""

from tests.support.runners.custom_driver import CustomHarness

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


async def test_scripts_run_in_a_sandbox_without_files_of_the_host(harness: CustomHarness) -> None:
    harness.driver.write("run", BUBBLEWRAP)
    harness.driver.write("config", CONFIG)
    variables = [
        {"key": "KEY", "value": "content", "file": True},
        {"key": "WORD", "value": "a 'b' $$c", "masked": True},
    ]
    result = await harness.run(
        "pwd", "cat file", 'cat "$KEY"; echo', 'echo "${#WORD}"', "ls /work 2>/dev/null || echo outside is not seen",
        variables=variables,
    )  # fmt: skip
    assert result.check().status == "success", result.log.decode()
    assert [line for line in result.lines if not line.startswith(b"\x1b")][-5:] == [
        b"/builds/group/project",
        b"version 1",
        b"content",
        b"8",
        b"outside is not seen",
    ]
    failed = await harness.run("exit 42")
    assert failed.check().exit_code == 42
