"""The settings of a cell, resolved once before anything runs.

Decided here: names, units, defaults and what a valid value is. Where they come from (flags, environment, a file) is
the command line's business.
"""

import math
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from remuda.cell.errors import CellError
from remuda.pipeline.syntax.durations import parse_duration

MEBIBYTE = 1024 * 1024
OPAQUE = "opaque"


class CellSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one cell runs."""

    data: Path
    """The folder that holds everything the cell keeps."""
    host: str = "127.0.0.1"
    port: int = 8080
    """0 picks a free one."""
    database: str = ""
    """Where the store is: `postgresql://user:password@host:port/name`; empty means a SQLite file in the data folder,
    which one process at a time can use."""
    cell_id: int = 1
    """Goes into every token and chooses the range of ids; never changes for a data folder."""
    public_url: str = ""
    """The address that runners and people use; empty means http://host:port."""
    admin_token: str | None = None
    """Accepted as the administrator's token; None leaves it to the first start to make one."""
    registration_token: str | None = None
    """Opens `POST /runners`; None leaves it to the first start to make one, and an empty one opens nothing."""
    job_tokens: str = "signed"
    """What a job's token is: `signed`, a JWT that says which cell and job it is of; or `opaque`, as older servers made
    them. Both are accepted, whatever is set, so that it can be changed while jobs run."""
    registry: str = ""
    """The address of the Docker registry that takes this cell's tokens, as https://registry.example:5000; empty: jobs
    are told of none."""
    registry_service: str = "container_registry"
    """The registry's own name, `auth.token.service` in its configuration."""
    registry_key: Path | None = None
    """A PEM file with the private key (RSA, or P-256 and larger) that signs tokens for the registry, and its
    certificate; without it the cell makes a key, and `GET /jwt/certificate` shows its certificate."""
    encryption_keys: tuple[str, ...] = ()
    """Keys for the secrets in the store, each 32 bytes in base64: the first one encrypts, all of them decrypt. None:
    they are in a file, which the first start makes."""
    encryption_key_file: Path | None = None
    """That file; None means `encryption.keys` in the data folder."""
    poll_hold_seconds: float = 50
    """How long `jobs/request` waits for a job at most, and by default of managers that say that they can wait, as
    Remuda's own does. Clients and proxies commonly give up after 60 s."""
    other_poll_hold_seconds: float = 0
    """The same for managers that do not say so, as gitlab-runner: there each request that waits occupies one of the
    `concurrent` workers, so that other runners of the same process get no jobs meanwhile. 0 answers at once. A runner
    may have a time of its own (`remuda runner set --poll-hold`)."""
    lease_seconds: float = 60
    """A job handed out and not acknowledged for so long is handed out again."""
    silent_seconds: float = 1800
    """A started job of which nothing is heard for so long has failed."""
    canceling_seconds: float = 120
    """A job that is being canceled and of which nothing is heard for so long is canceled: its runner is gone. Runners
    let hear of a job every 30 s."""
    unserved_seconds: float = 3600
    """A job that has waited for so long while no runner was there that could take it has failed."""
    pending_seconds: float = 24 * 3600
    """A job that no runner has taken for so long has failed."""
    overtime_seconds: float = 900
    """A job that its runner has not ended so long after its timeout has failed."""
    stale_seconds: float = 3600
    """A delayed job whose time came so long ago is not started any more."""
    trace_interval_seconds: int = 3
    """How often a runner should send its trace."""
    trace_limit_bytes: int = 100 * MEBIBYTE
    """A longer trace fails its job."""
    trace_piece_limit_bytes: int = 2 * MEBIBYTE
    """One call with trace bytes; runners send at most half of it."""
    artifact_limit_bytes: int = 1024 * MEBIBYTE
    """One uploaded file."""
    blobs: str = ""
    """Where artifacts and archived traces lie: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or
    the path of a folder; empty means the folder `blobs` in the data folder."""
    blobs_endpoint: str = ""
    """The address of the server that has the bucket, where it is not the provider's own."""
    artifacts_expire_in: str = "30 days"
    """How long artifacts are kept of which their job does not say it; `never` keeps them for ever."""
    keep_latest_artifacts: bool = True
    """Those of the newest pipeline of each ref that succeeded stay though they have expired."""
    upkeep_seconds: float = 60
    """How often the cell archives traces of jobs that are over and removes artifacts that have expired."""
    test_report_limit_bytes: int = 64 * MEBIBYTE
    """A JUnit report, unpacked, that is read for the test report of its pipeline."""
    test_report_total_limit_bytes: int = 512 * MEBIBYTE
    """All JUnit reports of a pipeline, unpacked; further ones are not read, and their suites say so."""
    test_report_limit_depth: int = 100
    """How deep the elements of a JUnit report may stand in each other."""
    test_report_limit_elements: int = 1_000_000
    """How many elements a JUnit report may have."""
    archive_limit_entries: int = 1_000_000
    """How many entries an archive may have of which single files are read or listed; a larger one can be downloaded."""
    parse_memory_bytes: int = 256 * MEBIBYTE
    """What all parsers of uploads, and answers that hold a whole file, may take together; further ones wait."""
    dotenv_limit_bytes: int = 5 * 1024
    """The text of one dotenv report, unpacked."""
    dotenv_limit_variables: int = 50
    """How many variables one dotenv report may have."""
    body_limit_bytes: int = MEBIBYTE
    """Any request with JSON that has no limit of its own."""
    commit_limit_bytes: int = 100 * MEBIBYTE
    """`POST .../repository/commits`, the files' content included."""
    push_limit_bytes: int = 5 * 1024 * MEBIBYTE
    """What one `git push` may send."""
    results_limit_bytes: int = 8 * MEBIBYTE
    """One call with step results."""
    results_total_limit_bytes: int = 16 * MEBIBYTE
    """All step results of a job; further ones are not kept, and a note says so."""
    request_limit_bytes: int = 32 * 1024
    """One `jobs/request`."""
    requests_per_minute: int = 12_000
    """How many requests a personal token may make, evenly or all at once; 0: as many as it likes. Each process counts
    for itself."""
    anonymous_requests_per_minute: int = 3_000
    """The same for an address of which no accepted token comes."""
    job_requests_per_minute: int = 60_000
    """The same for each token of a runner or a job, and for git."""
    audit_expire_in: str = "1 year"
    """How long the audit log is kept; `never` keeps it for ever."""
    body_silent_seconds: float = 60
    """A request whose body has begun and of which nothing comes for so long is given up."""
    reader_silent_seconds: float = 60
    """An answer of which nothing is read for so long, or less than 1 KiB a second, is given up."""
    remote_includes: tuple[str, ...] = ()
    """Beginnings of the addresses from which pipeline files may include (`include:remote`); none by default."""
    component_hosts: tuple[str, ...] = ()
    """Hosts beside the cell's own by which pipeline files may name it in the address of a component."""
    borrowed_objects: tuple[Path, ...] = ()
    """Folders with git objects on this machine that new repositories borrow, so that a push need not send them. What
    is borrowed must stay for as long as the cell does."""
    links: Path | None = None
    """A folder in which new repositories can be found by the paths of their projects, for runners on this machine."""
    pipelines_per_push: int = 20
    """Of a push that moves more branches and tags, the rest start no pipeline."""
    shell_limit_bytes: int = 64 * MEBIBYTE
    """What a shell in a job may carry, each way."""
    shell_idle_seconds: float = 1800
    """A shell in which nothing is typed or printed for so long ends."""
    stop_seconds: int = 5
    """How long a stop waits for requests that are under way."""

    def __post_init__(self) -> None:
        if self.cell_id < 1:
            raise CellError(f"cell id {self.cell_id}: a cell's id is a positive number")
        if self.database not in ("", "sqlite://") and not self.database.startswith(("postgresql://", "postgres://")):
            # Not said as it is: it may hold a password.
            raise CellError(
                "database: it starts with postgresql://, or is left out for the file cell.sqlite in the data folder"
            )
        if not 0 <= self.port <= 65535:
            raise CellError(f"port {self.port}: a port is a number from 0 to 65535")
        if self.public_url and urlsplit(self.public_url).scheme not in ("http", "https"):
            raise CellError(f"public URL {self.public_url!r}: it starts with http:// or https://")
        for name in self.__struct_fields__:
            wanted = describe_number(name)
            if wanted and not is_valid_number(name, getattr(self, name)):
                raise CellError(f"{name} {getattr(self, name)}: {wanted}")
        for address in self.remote_includes:
            parts = urlsplit(address)
            if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
                raise CellError(
                    f"remote includes {address!r}: it is the beginning of an address, as https://host/folder/"
                )
        _check_blobs(self.blobs, self.blobs_endpoint)
        if self.job_tokens not in ("signed", OPAQUE):
            raise CellError(f"job tokens {self.job_tokens!r}: it is signed or opaque")
        if self.registry and not _is_address(self.registry):
            raise CellError(f"registry {self.registry!r}: it is an address without a path, as https://registry.example")
        if self.artifacts_expire_in != "never" and parse_duration(self.artifacts_expire_in) is None:
            raise CellError(f'artifacts expire in {self.artifacts_expire_in!r}: it looks like "30 days" or "never"')
        if self.audit_expire_in != "never" and parse_duration(self.audit_expire_in) is None:
            raise CellError(f'audit expire in {self.audit_expire_in!r}: it looks like "1 year" or "never"')
        if self.pipelines_per_push < 0:
            raise CellError(f"pipelines per push {self.pipelines_per_push}: it is a number of at least 0")
        if self.admin_token is not None and len(self.admin_token) < 8:
            raise CellError("the administrator's token is too short: give at least 8 characters, better 20")

    @property
    def is_shared(self) -> bool:
        """Whether several processes can serve this cell at the same time."""
        return self.database.startswith("postgres")

    @property
    def url(self) -> str:
        """The public address without a slash at its end."""
        return (self.public_url or f"http://{_url_host(self.host)}:{self.port}").rstrip("/")

    @property
    def registry_host(self) -> str:
        """The registry as images are named by it; empty when there is none."""
        return urlsplit(self.registry).netloc

    def with_port(self, port: int) -> "CellSettings":
        """These settings once the port is known; the public address is filled in."""
        bound = msgspec.structs.replace(self, port=port)
        return msgspec.structs.replace(bound, public_url=bound.url)


def _is_address(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path in ("", "/") and "@" not in text


BUCKETS = ("s3", "gs", "az")
"""Schemes of the addresses that `blobs` may have."""


def _check_blobs(blobs: str, endpoint: str) -> None:
    parts = urlsplit(blobs)
    if blobs and not blobs.startswith("/") and (parts.scheme not in BUCKETS or not parts.netloc or "@" in parts.netloc):
        raise CellError(
            f"blobs {blobs!r}: it is s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or the whole path "
            "of a folder; credentials stand in the provider's environment variables"
        )
    if endpoint and (urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname):
        raise CellError(f"blobs endpoint {endpoint!r}: it starts with http:// or https://")
    if endpoint and not parts.scheme:
        raise CellError("blobs endpoint: it is for buckets; give blobs, too, for example s3://bucket/prefix")


_MAY_BE_NOTHING = frozenset(
    {"poll_hold_seconds", "other_poll_hold_seconds", "stop_seconds"}
    | {"requests_per_minute", "anonymous_requests_per_minute", "job_requests_per_minute"}
)


def is_valid_number(name: str, value: float) -> bool:
    """Whether a number can be the value of a duration or a limit."""
    return math.isfinite(value) and (value > 0 or (value == 0 and name in _MAY_BE_NOTHING))


def describe_number(name: str) -> str | None:
    """What a duration or a limit may be, in words; None for any other setting."""
    if not name.endswith(("_seconds", "_bytes", "_variables", "_per_minute", "_depth", "_elements", "_entries")):
        return None
    field = _fields()[name]
    kind = "a whole number" if field.type is int else "a number"
    least = "of at least 0" if name in _MAY_BE_NOTHING else "above 0"
    return f"{kind} {least} is wanted, for example {field.default}"


@cache
def _fields() -> dict[str, msgspec.structs.FieldInfo]:
    """Looked up once: that takes longer than all checks."""
    return {field.name: field for field in msgspec.structs.fields(CellSettings)}


def _url_host(host: str) -> str:
    if host in ("", "0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
