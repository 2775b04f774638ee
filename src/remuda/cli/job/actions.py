"""`remuda job cancel`, `retry`, `play` and `erase`: change a job of a cell."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress, in_project
from remuda.cli.access.confirmation import Yes, confirm
from remuda.cli.job.listing import JobNumber
from remuda.cli.options import Output, read_pairs, repeatable
from remuda.cli.render.listing import print_change
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

Follow = Annotated[
    bool, Parameter(name=("--follow", "-f"), negative=(), help="Print the job's log until the job has ended.")
]
Inputs = Annotated[
    tuple[str, ...], repeatable("--input", "A value for an input that the job declares (`inputs`), NAME=VALUE.")
]


def cancel(
    job: JobNumber,
    /,
    *,
    force: Annotated[
        bool,
        Parameter(negative=(), help="Do not wait for the runner and the job's after_script. Only for maintainers."),
    ] = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Cancel a job. A running job is canceling until its runner has stopped it and its after_script has run.

    A job that has ended does not change. Jobs of protected refs can be canceled by maintainers only.

    Try:

        remuda job cancel 7
        remuda job cancel 7 --force
    """
    body = {"force": True} if force else None
    changed = cell.ask(lambda client: _act(client, job, "cancel", body))
    status = changed["status"]
    had_ended = _has_ended(status) and status != "canceled"
    print_change(changed, f"job {job} has ended already ({status})" if had_ended else f"job {job} is {status}", output)


def retry(
    job: JobNumber,
    /,
    *,
    inputs: Inputs = (),
    follow: Follow = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Run a job that has ended again, as a new job with the same settings.

    Jobs that were skipped because of it, and have not run, start after it.

    Try:

        remuda job retry 7
        remuda job retry 7 --follow
        remuda job retry 7 --input target=staging
    """
    _check_follow(follow=follow, output=output)
    body = {"job_inputs": read_pairs("--input", inputs)} if inputs else None
    new = cell.ask(lambda client: _retry(client, job, body))
    print_change(new, f"job {job} runs again as job {new['id']}{_hint(new, follow=follow)}", output)
    _follow(cell, new, follow=follow)


def play(
    job: JobNumber,
    /,
    *,
    variable: Annotated[
        tuple[str, ...], repeatable("--variable", "A variable for this run of the job, NAME=VALUE.")
    ] = (),
    inputs: Inputs = (),
    follow: Follow = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Start a manual job, or a delayed job before its time.

    Try:

        remuda job play 7
        remuda job play 7 --variable VERSION=1.4 --follow
    """
    _check_follow(follow=follow, output=output)
    variables = [{"key": name, "value": value} for name, value in read_pairs("--variable", variable).items()]
    body = {"job_variables_attributes": variables, "job_inputs": read_pairs("--input", inputs)}
    started = cell.ask(lambda client: _play(client, job, body))
    print_change(started, f"job {job} is {started['status']}{_hint(started, follow=follow)}", output)
    _follow(cell, started, follow=follow)


def erase(job: JobNumber, /, *, yes: Yes = False, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """Delete the log and the artifacts of a job that has ended. The job itself stays in its pipeline.

    Try:

        remuda job erase 7
        remuda job erase 7 --yes
    """

    async def ask(client: "UserClient") -> dict[str, Any]:
        from remuda.wire.user_client import RefusedError

        try:
            return await _act(client, job, "erase")
        except RefusedError as error:
            await _refuse_unless_ended(client, job, "only a job that has ended can be erased", "cancel it first")
            if "not erasable" in str(error):
                raise BadInputError(f"job {job} has no log and no artifacts (any more)") from None
            raise

    confirm(f"delete the log and the artifacts of job {job}", yes=yes)
    print_change(cell.ask(ask), f"the log and the artifacts of job {job} are deleted", output)


async def _act(client: "UserClient", job: int, action: str, body: object | None = None) -> dict[str, Any]:
    project = (await client.job(job))["pipeline"]["project_id"]
    changed: dict[str, Any] = await client.call("POST", in_project(project, "jobs", job, action), body)
    return changed


async def _retry(client: "UserClient", job: int, body: object | None) -> dict[str, Any]:
    from remuda.wire.user_client import RefusedError

    try:
        return await _act(client, job, "retry", body)
    except RefusedError as error:
        if error.status == 403:
            await _refuse_unless_ended(
                client, job, "only a job that has ended can run again", "wait for its end, or cancel it"
            )
            await _refuse_second_retry(client, job)
        raise


async def _refuse_second_retry(client: "UserClient", job: int) -> None:
    """Raise BadInputError if a newer job replaces this one, or if it was skipped."""
    this = await client.job(job)
    if this["status"] == "skipped":
        raise BadInputError(
            f"job {job} was skipped; run one of the jobs that it waited for again: remuda job why {job}"
        )
    pipeline = this["pipeline"]
    latest = await client.pages(in_project(pipeline["project_id"], "pipelines", pipeline["id"], "jobs"))
    newer = next((other["id"] for other in latest if other["name"] == this["name"] and other["id"] > job), None)
    if newer:
        raise BadInputError(f"job {job} was retried already, as job {newer}: remuda job show {newer}")


async def _play(client: "UserClient", job: int, body: object) -> dict[str, Any]:
    from remuda.wire.user_client import RefusedError

    try:
        return await _act(client, job, "play", body)
    except RefusedError as error:
        status = (await client.job(job))["status"]
        if error.status == 400 and status not in ("manual", "scheduled"):
            can_retry = _has_ended(status) and status != "skipped"
            step = f"run it again with `remuda job retry {job}`" if can_retry else f"see `remuda job why {job}`"
            raise BadInputError(
                f"job {job} {_state_words(status)}; only manual and delayed jobs can be started: {step}"
            ) from None
        raise


async def _refuse_unless_ended(client: "UserClient", job: int, rule: str, advice: str) -> None:
    """Raise BadInputError with `rule` and `advice` if a job has not ended."""
    status = (await client.job(job))["status"]
    if not _has_ended(status):
        raise BadInputError(f"job {job} {_state_words(status)}; {rule}: {advice} (`remuda job cancel {job}`)")


def _has_ended(status: str) -> bool:
    from remuda.model.job import FINAL

    return status in FINAL


def _state_words(status: str) -> str:
    return f"has ended ({status})" if _has_ended(status) else f"is {status}"


def _check_follow(*, follow: bool, output: str) -> None:
    if follow and output == "json":
        raise BadInputError("--follow prints the log; leave it out with --output json")


def _hint(job: Mapping[str, Any], *, follow: bool) -> str:
    return "" if follow else f"; its log: remuda job log {job['id']} --follow"


def _follow(cell: CellAddress, job: Mapping[str, Any], *, follow: bool) -> None:
    if follow:
        from remuda.cli.job.log import log

        log(job["id"], follow=True, cell=cell)
