"""Reads and evaluates `workflow`: whether a pipeline is created, its name, and what cancels it automatically.

The first rule that applies decides, and its variables override those of the file. If there are rules and none applies,
no pipeline is created."""

from __future__ import annotations

import msgspec

from remuda.pipeline.errors import Place, Report
from remuda.pipeline.keywords.variables import Variables
from remuda.pipeline.rules.clauses import Judge
from remuda.pipeline.rules.job_rules import AutoCancel, Rule, read_auto_cancel, read_rules
from remuda.pipeline.syntax.known_keys import WORKFLOW, WORKFLOW_RULE
from remuda.pipeline.syntax.tree import Node, Table
from remuda.pipeline.syntax.typed_values import read_fields
from remuda.pipeline.syntax.variable_expansion import ExpansionError

MAX_PIPELINE_NAME = 255


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """The keyword `workflow` as written, before its rules are evaluated."""

    name: str = ""
    name_at: Node | None = None
    rules: tuple[Rule, ...] | None = None
    auto_cancel: AutoCancel = AutoCancel()


def read_workflow(report: Report, judge: Judge, node: Node) -> Workflow:
    fields = read_fields(report, node, "workflow", WORKFLOW)
    name = fields.text("name") or ""
    if len(name) > MAX_PIPELINE_NAME:
        fields.refuse_value("name", f"has more than {MAX_PIPELINE_NAME} characters", "shorten it")
    return Workflow(
        name=name,
        name_at=node.entries["name"].value if isinstance(node, Table) and "name" in node.entries else None,
        rules=fields.read("rules", read_rules, judge, WORKFLOW_RULE),
        auto_cancel=fields.read("auto_cancel", read_auto_cancel) or AutoCancel(),
    )


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `workflow` for a pipeline: name, variables, automatic cancellation, or why it is not created."""

    name: str
    auto_cancel: AutoCancel
    variables: Variables
    skipped: str | None
    """Why there is no pipeline."""


def judge_workflow(report: Report, judge: Judge, workflow: Workflow, own: Variables) -> Outcome:
    """Evaluate the rules of `workflow` and expand the pipeline's name. `own` are the file's variables."""
    rule = next((each for each in workflow.rules or () if judge.applies(each.clauses, own)), None)
    skipped = None
    if workflow.rules is not None and rule is None:
        skipped = "no rule of workflow:rules applies"
    elif rule is not None and rule.when == "never":
        skipped = f"the rule of workflow:rules on line {rule.clauses.at.line} says never"
    variables = rule.variables.over(own) if rule is not None else own
    cancel, by_rule = workflow.auto_cancel, (rule.auto_cancel if rule is not None else None) or AutoCancel()
    name = ""
    try:
        name = judge.expansion(variables).expand(workflow.name).strip()[:MAX_PIPELINE_NAME]
    except ExpansionError as error:
        report.add(workflow.name_at or Place(), "workflow:name", f"the name {error}", "use shorter variables")
    return Outcome(
        name=name,
        auto_cancel=AutoCancel(
            on_new_commit=by_rule.on_new_commit or cancel.on_new_commit,
            on_job_failure=by_rule.on_job_failure or cancel.on_job_failure,
        ),
        variables=variables,
        skipped=skipped,
    )
