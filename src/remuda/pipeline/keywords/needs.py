"""Reads `needs` of a job or a rule. `job_checks` and `job_list` check later whether the jobs exist."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from remuda.pipeline.errors import Report, quote
from remuda.pipeline.keywords.parallel import Parallel, read_matrix
from remuda.pipeline.spec import Need, OutsideNeed
from remuda.pipeline.syntax.known_keys import NEED, PARALLEL
from remuda.pipeline.syntax.tree import Node, Scalar, Table, flatten
from remuda.pipeline.syntax.typed_values import is_null, is_text, mistyped, read_fields, read_text


class WrittenNeed(msgspec.Struct, frozen=True, kw_only=True):
    """A need of a job in the same pipeline. `parallel`: only the parts with these matrix values are needed."""

    need: Need
    parallel: Parallel | None = None
    at: Node


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """A job's needs. `inside` is None if all needs are in other pipelines: the job then waits for earlier stages."""

    inside: tuple[WrittenNeed, ...] | None
    outside: tuple[OutsideNeed, ...] = ()


def is_status_mirror(job: Node) -> bool:
    """True for a job that in GitLab only shows the status of another project's pipeline: without anything to run, and
    with `needs:pipeline` without `job`."""
    if not isinstance(job, Table) or not {"script", "run", "trigger"}.isdisjoint(job.entries):
        return False
    needs = flatten(job.entries["needs"].value) if "needs" in job.entries else ()
    return any(isinstance(each, Table) and "pipeline" in each.entries and "job" not in each.entries for each in needs)


def leave_out(report: Report, needs: Needs | None, mirrors: Container[str], path: str) -> Needs | None:
    """Return the needs without those of jobs that only show the status of another pipeline. Warns of each."""
    if needs is None or needs.inside is None:
        return needs
    kept = tuple(each for each in needs.inside if each.need.job not in mirrors)
    for each in needs.inside:
        if each.need.job in mirrors:
            report.warn(each.at, path, f"does not wait for {quote(each.need.job)}, which is left out")
    return msgspec.structs.replace(needs, inside=kept)


def read_needs(report: Report, node: Node, path: str) -> Needs:
    if isinstance(node, Scalar):
        mistyped(report, node, path, "a list of jobs", "put it in a list" if is_text(node) else "")
        return Needs(inside=())
    needs: list[WrittenNeed] = []
    outside: list[OutsideNeed] = []
    for item in flatten(node):
        if is_null(item):
            continue
        if isinstance(item, Table) and ("project" in item.entries or "pipeline" in item.entries):
            if outside_need := _outside(report, item, path):
                outside.append(outside_need)
        elif need := _need(report, item, path):
            needs.append(need)
    return Needs(inside=None if outside and not needs else tuple(needs), outside=tuple(outside))


def _need(report: Report, node: Node, path: str) -> WrittenNeed | None:
    if not isinstance(node, Table):
        job = read_text(report, node, path)
        return None if job is None else WrittenNeed(need=Need(job=job), at=node)
    fields = read_fields(report, node, path, NEED)
    if "job" not in fields:
        report.add(node, path, 'a need must have a "job"', "name the job to wait for")
        return None
    job = fields.text("job")
    artifacts, optional = fields.flag("artifacts"), fields.flag("optional")
    if "ref" in fields:
        fields.refuse_key("ref", '"ref" requires a "project"', "name the project, or remove it")
    parallel = fields.read("parallel", _parts)
    if job is None:
        return None
    need = Need(job=job, artifacts=artifacts is not False, optional=bool(optional))
    return WrittenNeed(need=need, parallel=parallel, at=node)


def _parts(report: Report, node: Node, path: str) -> Parallel | None:
    return read_fields(report, node, path, PARALLEL).read("matrix", read_matrix)


def _outside(report: Report, node: Table, path: str) -> OutsideNeed | None:
    fields = read_fields(report, node, path, NEED)
    if "project" in fields and "pipeline" in fields:
        report.add(node, path, '"project" and "pipeline" do not go together', "keep one")
    if "project" in fields:
        for key in ("job", "ref"):
            if key not in fields:
                report.add(node, path, f'a need of another project must have a "{key}"', f'give it a "{key}"')
    if "pipeline" in fields and "job" not in fields:
        report.warn(node, path, 'has no effect without a "job"', "name the job whose artifacts are needed")
    if "parallel" in fields:
        fields.refuse_key("parallel", '"parallel" works only for jobs of this pipeline', "remove it")
    return OutsideNeed(
        job=fields.text("job") or "",
        project=fields.text("project") or "",
        ref=fields.text("ref") or "",
        pipeline=fields.text("pipeline") or "",
        artifacts=fields.flag("artifacts") is not False,
        optional=fields.flag("optional") is True,
    )
