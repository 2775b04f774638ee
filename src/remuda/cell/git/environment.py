"""The environment variables of every git process that a cell starts: of the cell's own environment, only PATH.

git ignores the settings of the machine and never prompts. It ignores `refs/replace` and grafts: with them, whoever may
push such a ref could change what a commit on a protected branch contains."""

import os
from pathlib import Path

from remuda.cell.git.request_limits import LISTS_LIMIT_BYTES
from remuda.lib.files import is_sync_enabled

_SETTINGS = (
    ("safe.directory", "*"),
    ("core.fsync", "committed"),
    ("core.logAllRefUpdates", "false"),
    ("http.receivepack", "true"),
    ("http.getanyfile", "false"),
    ("http.maxRequestBuffer", str(LISTS_LIMIT_BYTES)),
    ("uploadpack.allowAnySHA1InWant", "true"),
    ("uploadpack.allowFilter", "true"),
    # The last match counts: all refs are hidden but these.
    ("uploadpack.hideRefs", "refs"),
    ("uploadpack.hideRefs", "!refs/heads"),
    ("uploadpack.hideRefs", "!refs/tags"),
    ("uploadpack.hideRefs", "!refs/merge-requests"),
    ("uploadpack.hideRefs", "!refs/pipelines"),
    ("receive.advertisePushOptions", "true"),
    ("receive.autogc", "false"),
    ("receive.denyDeleteCurrent", "refuse"),
    ("receive.shallowUpdate", "false"),
    # Only the cell creates the first, nobody the second: they are neither shown to a push nor accepted from one.
    ("receive.hideRefs", "refs/pipelines"),
    ("receive.hideRefs", "refs/replace"),
    # The sender of a signed push would choose what these programs read.
    ("gpg.program", "false"),
    ("gpg.x509.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gc.auto", "0"),
)
_NO_FILE = f"{os.devnull}/none"
"""A path that cannot exist. git ignores a missing graft file; for an empty one `git upload-pack` prints a deprecation
hint, whatever `advice.graftFileDeprecated` says, because it does not read that setting."""


def make_environment(root: Path, hooks: Path, push_limit_bytes: int) -> dict[str, str]:
    """Return the variables for git. `root` is the folder with the repositories, `hooks` the folder with the pre-receive
    hook. `push_limit_bytes` limits the size of a push; 0 means no limit."""
    settings = [*_SETTINGS, ("core.hooksPath", str(hooks)), ("receive.maxInputSize", str(push_limit_bytes))]
    if not is_sync_enabled():
        settings.append(("core.fsync", "none"))
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "HOME": str(root),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_GRAFT_FILE": _NO_FILE,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    for number, (key, value) in enumerate(settings):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return environment
