"""`remuda step`: runs a single step without a job, for authors of steps. `remuda.localrun.step_run` does the work."""

import json
import re
import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from remuda.lib.exits import BadInputError, Exit

Pairs = list[str] | None

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def run(
    step: Annotated[str, Parameter(help="Folder or file of a definition, or a reference to git, OCI or builtin://.")],
    /,
    *,
    inputs: Annotated[
        Pairs,
        Parameter(
            name="--input",
            negative=(),
            help="Input, NAME=VALUE. Values of types other than text are YAML. Can be repeated.",
        ),
    ] = None,
    env: Annotated[
        Pairs,
        Parameter(name="--env", negative=(), help="Environment variable of the step, NAME=VALUE. Can be repeated."),
    ] = None,
    variables: Annotated[
        Pairs,
        Parameter(
            name="--var",
            negative=(),
            help="Job variable, NAME=VALUE, for ${{ vars.NAME }} and the environment. Can be repeated.",
        ),
    ] = None,
    timeout: Annotated[int, Parameter(help="Timeout in seconds. 0 means no limit.")] = 0,
    output: Annotated[
        Literal["text", "json"] | None, Parameter(help="Format of the output [default: text on a terminal, else json].")
    ] = None,
) -> None:
    """Run a step on this machine and print its result.

    The working directory is the current folder. The log goes to stderr, the result to stdout: as text, or as one JSON
    object with status, exit_code, outputs, exports, error and steps (the results of all inner steps). Of your
    environment the step gets only PATH, HOME, USER, LOGNAME, SHELL, TERM, TMPDIR, TZ, LANG, LC_* and the proxies; pass
    everything else with --env.

    Exit codes: 0 the step succeeded, 1 it failed, 2 it could not be loaded, 130 Ctrl-C.

    Try:

        remuda step run .
        remuda step run ./greet --input who=world --output json
        remuda step run gitlab.example.com/team/steps/-/lint@1.2 --input path=src
    """
    from remuda.localrun.render.step_tree import summary_of
    from remuda.localrun.step_run import StepRequest, run_here

    request = StepRequest(
        step=step,
        inputs=_pairs(inputs, "--input"),
        env=_pairs(env, "--env"),
        variables=_pairs(variables, "--var"),
        timeout_seconds=timeout,
    )
    if timeout < 0:
        raise BadInputError(f"--timeout {timeout}: 0 (no limit) or more seconds")
    result = run_here(request)
    if (output or ("text" if sys.stdout.isatty() else "json")) == "json":
        print(json.dumps(result, ensure_ascii=False))
    else:
        print(summary_of(result))
    if result["status"] == "cancelled":
        raise SystemExit(Exit.INTERRUPTED)
    if result["status"] != "success":
        raise SystemExit(Exit.FAILURE)


def _pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign or not _NAME.fullmatch(name):
            raise BadInputError(f"{option} {text}: write NAME=VALUE, the name of letters, digits and _")
        pairs[name] = value
    return pairs
