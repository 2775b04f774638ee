"""Reads outputs and exports of a command that has succeeded, and checks them against what its step declares.

A script may write any output. A step that opens an environment must output in `environment` how to run commands there.
"""

from collections.abc import Mapping
from typing import Any

from remuda.steps.engine.output_files import OutputError, read_exports, read_outputs, read_result_of_another
from remuda.steps.job_tree.tree import CLOSE, DELEGATE, ENVIRONMENT, OPEN, Node
from remuda.steps.language.checking import check_outputs
from remuda.steps.language.values import NAME
from remuda.steps.process.step_files import StepFiles


def read_step_outputs(node: Node, files: StepFiles, suffixes: set[str]) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Return a step's outputs and exports. `suffixes`: files that exist. Raises DefinitionError if one is invalid."""
    exports = read_exports(files.exports) if ".exports" in suffixes else {}
    return _outputs(node, files, suffixes), exports


def _outputs(node: Node, files: StepFiles, suffixes: set[str]) -> Mapping[str, Any]:
    assert node.loaded is not None
    if node.loaded.step.spec.delegates_outputs:
        return read_result_of_another(files.outputs)
    written = read_outputs(files.outputs) if ".outputs" in suffixes else {}
    if node.loaded.is_script:
        for name in written:
            if not NAME.fullmatch(name):
                raise OutputError(f'output "{name[:100]}": a name of letters, digits and _ is needed')
        return written
    if node.phase in (DELEGATE, CLOSE):
        return {}
    if node.phase == OPEN:
        return _environment_outputs(node, written)
    return check_outputs(node.loaded.step.spec, written)


def _environment_outputs(node: Node, written: dict[str, Any]) -> Mapping[str, Any]:
    assert node.parent is not None
    assert node.parent.loaded is not None
    environment, spec = written.get(ENVIRONMENT), node.parent.loaded.step.spec
    if not isinstance(environment, dict):
        raise OutputError(f'output "{ENVIRONMENT}": a struct is needed that says how to run something there')
    if ENVIRONMENT not in spec.outputs:
        del written[ENVIRONMENT]
    return {**check_outputs(spec, written), ENVIRONMENT: environment}
