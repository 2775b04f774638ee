"""Begins and ends the definition that a job's request itself contains, around its list of steps: evaluates its inputs
(all have defaults), its `env`, and after the steps its outputs. `job_execution` calls it.

Clients that compile jobs, such as Remuda's manager, use none of these; a client of GitLab's step runner may."""

from remuda.lib.killpoints import reach
from remuda.steps.engine.job_state import JobState
from remuda.steps.engine.step_results import outputs_event
from remuda.steps.errors import DefinitionError
from remuda.steps.job_tree.evaluation import evaluate_root, run_outputs, secrets_in
from remuda.steps.job_tree.outcome import Kind, Outcome, Status, failure


def enter_root(state: JobState) -> Outcome | None:
    """Evaluate inputs and `env` of the job's own definition. Returns how the job ends if they are invalid, else None.
    Nothing is stored: a new agent evaluates them again."""
    root = state.tree.root
    try:
        root.entered = evaluate_root(state.tree, state.facts)
    except DefinitionError as error:
        return _fail(str(error))
    state.mask(secrets_in(root.entered.inputs, root.entered.definition_env))
    return None


async def finish_root(state: JobState, outcome: Outcome) -> Outcome:
    """Evaluate the outputs of the job's own definition after its steps, and store them for clients, unless the steps
    have failed or it has none. Returns the outcome of the job: `outcome`, or a failure if an output is invalid."""
    definition = state.tree.root.definition
    if outcome.status is not Status.SUCCESS or state.journal.has_recorded_outputs:
        return outcome
    try:
        outputs = run_outputs(state.tree, state.facts, state.tree.root)
    except DefinitionError as error:
        return _fail(f"outputs: {error}")
    if outputs or definition.outputs:
        state.mask(secrets_in(outputs))
        event = outputs_event(outputs, state.log.secrets, now=state.context.clock.now())
        await state.write(lambda: state.journal.record_outputs(event))
        reach("agent.outputs_stored")
    return outcome


def _fail(error: str) -> Outcome:
    result = failure(error, Kind.OUTPUTS)
    assert result.error is not None
    return Outcome(
        status=Status.FAILURE,
        reason="script_failure",
        exit_code=-1,
        message=result.error,
        log_line=f"ERROR: Job failed: {result.error}",
    )
