"""`remuda step`: runs a step without a job, for authors of steps. `remuda.localrun.step_run` does the work."""

import json
import re
import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from remuda.lib.exits import BadInputError, Exit

Pairs = list[str] | None

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def run(
    step: Annotated[str, Parameter(help="Folder or file of a definition, or a reference: git, OCI, builtin://.")],
    /,
    *,
    inputs: Annotated[
        Pairs,
        Parameter(name="--input", negative=(), help="NAME=VALUE; others than texts as YAML. Repeatable."),
    ] = None,
    env: Annotated[
        Pairs, Parameter(name="--env", negative=(), help="NAME=VALUE for the step's environment. Repeatable.")
    ] = None,
    variables: Annotated[
        Pairs, Parameter(name="--var", negative=(), help="NAME=VALUE of a job variable, ${{ vars.NAME }}. Repeatable.")
    ] = None,
    timeout: Annotated[int, Parameter(help="Seconds until it is stopped; 0: no limit.")] = 0,
    output: Annotated[
        Literal["text", "json"] | None, Parameter(help="What to print [default: text on a terminal, else json].")
    ] = None,
) -> None:
    """Run a step here and print what came of it.

    The working directory is this folder. The log goes to stderr; stdout gets one JSON object with status, exit_code,
    outputs, exports, error and steps, the results of all steps below it. Of your environment the step sees only what a
    job's step sees of its machine's (PATH, HOME, locale, proxies); everything else comes by --env.

    Exit code 0 when the step succeeded, 1 when it failed, 2 when it could not be loaded.

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
    """NAME=VALUE texts as a mapping. The last value of a name wins."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign or not _NAME.fullmatch(name):
            raise BadInputError(f"{option} {text}: write NAME=VALUE, the name of letters, digits and _")
        pairs[name] = value
    return pairs
