"""The settings of a cell: names, units, defaults and checks of their values. They are read once, at the start."""

import ipaddress
import math
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from remuda.cell.errors import CellError
from remuda.cell.web_settings import WebSettings
from remuda.pipeline.facts import DEFAULT_NEEDS_LIMIT
from remuda.pipeline.include.allowed_addresses import read_prefix
from remuda.pipeline.predefined_variables import IMAGE_PROXY, PAGES_DOMAIN
from remuda.pipeline.syntax.durations import parse_duration

MEBIBYTE = 1024 * 1024
OPAQUE = "opaque"


class CellSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one cell, with their defaults. Creating one raises CellError for invalid values."""

    data: Path
    """The data folder of the cell."""
    host: str = "127.0.0.1"
    """The address on which the cell listens."""
    port: int = 8080
    """The port on which the cell listens; 0 picks a free one."""
    database: str = ""
    """Where the store is: `postgresql://user:password@host:port/name`; empty means a SQLite file in the data folder,
    which one process at a time can use."""
    cell_id: int = 1
    """The number of the cell. It is part of runner, personal, trigger and signed job tokens, and determines the range
    of ids. It cannot be changed for an existing data folder."""
    public_url: str = ""
    """The address that runners and people use: all addresses that the cell gives out begin with it. Empty means
    http://host:port, and https://host:port with a certificate."""
    tls_certificate: Path | None = None
    """A PEM file with the cell's certificate, followed by those of the authorities between it and a root that clients
    trust. With it the cell serves HTTPS (TLS 1.2 and newer) and no HTTP. A changed file is read within seconds, and at
    once on SIGHUP; open connections stay."""
    tls_key: Path | None = None
    """A PEM file with the private key of that certificate, without a passphrase; if it is not set, `tls_certificate`
    has the key, too."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks (`10.0.0.0/8`) of proxies in front of the cell on other machines. Their requests have the
    client's address in `X-Forwarded-For`, which the cell uses for rate limits, the audit log and runners. A proxy on
    the same machine is always trusted; from other addresses the header has no effect."""
    admin_token: str | None = None
    """The administrator's token; if it is not set, the first start creates one."""
    registration_token: str | None = None
    """The token for `POST /runners`; if it is not set, the first start creates one. An empty one disables the call."""
    job_tokens: str = "signed"
    """The form of job tokens: `signed`, a JWT that names its cell and job; or `opaque`, as older servers issued. Both
    are always accepted, so the setting can be changed while jobs run."""
    registry: str = ""
    """The address of the Docker registry that accepts this cell's tokens, as https://registry.example:5000; empty: jobs
    get no registry."""
    registry_service: str = "container_registry"
    """The registry's own name, `auth.token.service` in its configuration."""
    registry_key: Path | None = None
    """A PEM file with the private key (RSA, or P-256 and larger) that signs tokens for the registry, and its
    certificate; without it the cell creates a key, and `GET /jwt/certificate` shows its certificate."""
    encryption_keys: tuple[str, ...] = ()
    """Keys for the secrets in the store, each 32 bytes in base64: the first one encrypts, all of them decrypt. Without
    them the keys are in a file, which the first start creates."""
    encryption_key_file: Path | None = None
    """The file with the encryption keys; by default `encryption.keys` in the data folder."""
    poll_hold_seconds: float = 50
    """How long `jobs/request` waits for a job before it answers 204 (long polling), for managers that say how long they
    can wait, as Remuda's own does. It is also the upper limit for other managers. Clients and proxies commonly give up
    after 60 s."""
    other_poll_hold_seconds: float = 0
    """How long `jobs/request` waits for a job for other managers, such as gitlab-runner. There each waiting request
    occupies one of the `concurrent` workers, so that other runners of the same process get no jobs meanwhile. 0 answers
    at once. `remuda runner set --poll-hold` sets another time for one runner."""
    lease_seconds: float = 60
    """A job that its runner does not acknowledge within this time is handed out again."""
    silent_seconds: float = 1800
    """A started job fails if its runner has not called for this time."""
    canceling_seconds: float = 120
    """A job that is being canceled becomes canceled if its runner has not called for this time. Runners
    report a job every 30 s."""
    unserved_seconds: float = 3600
    """A waiting job fails if no runner that could take it has been available for this time."""
    pending_seconds: float = 24 * 3600
    """A waiting job fails if no runner has taken it for this time."""
    overtime_seconds: float = 900
    """A job fails if its runner has not ended it this time after the job's timeout."""
    stale_seconds: float = 3600
    """A delayed job fails if it should have started this time ago."""
    trace_interval_seconds: int = 3
    """How often runners are asked to send new bytes of a trace."""
    trace_limit_bytes: int = 100 * MEBIBYTE
    """The longest trace; a job with a longer one fails."""
    trace_piece_limit_bytes: int = 2 * MEBIBYTE
    """The limit for one call with trace bytes. Runners send at most 1 MiB in a call."""
    artifact_limit_bytes: int = 1024 * MEBIBYTE
    """The limit for one uploaded file."""
    lfs_limit_bytes: int = 5 * 1024 * MEBIBYTE
    """The limit for one file that is stored with Git LFS."""
    lfs_project_limit_bytes: int = 0
    """The limit for all files that a project stores with Git LFS; 0: no limit."""
    blobs: str = ""
    """Where artifacts, archived traces and Git LFS files are stored: `s3://bucket/prefix`, `gs://bucket/prefix`,
    `az://container/prefix` or the absolute path of a folder; empty means the folder `blobs` in the data folder."""
    blobs_endpoint: str = ""
    """The address of the bucket's server, if it is not the provider's own, for example `http://127.0.0.1:9000`."""
    artifacts_expire_in: str = "30 days"
    """How long artifacts are kept if their job does not set it; `never` keeps them for ever."""
    keep_latest_artifacts: bool = True
    """Keep expired artifacts of the newest successful pipeline of each ref."""
    hook_local_addresses: bool = False
    """Let webhooks send requests to loopback, private and link-local addresses. Everybody who may create a webhook can
    then reach servers in the cell's own network."""
    upkeep_seconds: float = 60
    """How often the cell archives traces of finished jobs and removes expired artifacts."""
    test_report_limit_bytes: int = 64 * MEBIBYTE
    """The limit for one JUnit report, unpacked, in the test report of a pipeline."""
    test_report_total_limit_bytes: int = 512 * MEBIBYTE
    """The limit for all JUnit reports of a pipeline, unpacked; further reports are shown as
    errors of their suites."""
    test_report_limit_depth: int = 100
    """How deep the elements of a JUnit report may be nested."""
    test_report_limit_elements: int = 1_000_000
    """How many elements a JUnit report may have."""
    archive_limit_entries: int = 1_000_000
    """How many entries an archive may have. Files of a larger archive cannot be listed or read one by one; it can only
    be downloaded as a whole."""
    parse_memory_bytes: int = 256 * MEBIBYTE
    """The memory limit for all requests that parse an upload or answer with a whole file; further requests wait."""
    dotenv_limit_bytes: int = 5 * 1024
    """The limit for one dotenv report, unpacked."""
    dotenv_limit_variables: int = 50
    """How many variables one dotenv report may have."""
    body_limit_bytes: int = MEBIBYTE
    """The limit for a JSON body, for endpoints without another limit."""
    commit_limit_bytes: int = 100 * MEBIBYTE
    """The limit for `POST .../repository/commits`, including the files' content."""
    push_limit_bytes: int = 5 * 1024 * MEBIBYTE
    """The limit for one `git push`."""
    results_limit_bytes: int = 8 * MEBIBYTE
    """The limit for one call with step results."""
    results_total_limit_bytes: int = 16 * MEBIBYTE
    """The limit for all step results of a job; further results are dropped, and a last entry says so."""
    request_limit_bytes: int = 32 * 1024
    """The limit for one `jobs/request`."""
    requests_per_minute: int = 12_000
    """How many requests a personal token may make in a minute, evenly or all at once; 0: no limit. Each process of the
    cell counts separately."""
    anonymous_requests_per_minute: int = 3_000
    """How many requests without a valid token an IP address may make in a minute; 0: no limit."""
    job_requests_per_minute: int = 60_000
    """How many requests each token of a runner or a job may make in a minute, including git; 0: no limit."""
    audit_expire_in: str = "1 year"
    """How long the audit log is kept; `never` keeps it for ever."""
    body_silent_seconds: float = 60
    """A request is aborted if its body stalls for this time, or comes with less than 1 KiB a second."""
    reader_silent_seconds: float = 60
    """An answer is aborted if its reader stalls for this time, or reads less than 1 KiB a second."""
    remote_includes: tuple[str, ...] = ()
    """Prefixes of the addresses from which pipeline files may include files with `include:remote`. Without them,
    `include:remote` is refused."""
    templates: str = ""
    """A folder with files for `include:template`, or the address of a server that has them: a GitLab server, another
    cell, or a folder on a web server. Templates that it does not have are Remuda's own."""
    image_proxy: str = IMAGE_PROXY
    """The beginning of image names in CI_DEPENDENCY_PROXY_GROUP_IMAGE_PREFIX: a registry that mirrors Docker Hub, or
    Docker Hub itself."""
    pages_domain: str = PAGES_DOMAIN
    """The domain in CI_PAGES_URL: one at which another server publishes what jobs build. The cell serves no sites.
    Without a value, jobs have no CI_PAGES_* variables."""
    masks_any_value: bool = False
    """A masked variable may have any value, also short ones and several lines, which GitLab refuses. For local runs."""
    component_hosts: tuple[str, ...] = ()
    """Other host names of the cell that pipeline files may use in component addresses."""
    borrowed_objects: tuple[Path, ...] = ()
    """Folders with git objects on this machine that new repositories use as alternates, so that a push need not send
    these objects. The folders must exist for as long as the cell does."""
    links: Path | None = None
    """A folder in which the cell creates a link to each new repository, named by the path of its project, for runners
    on this machine."""
    needs_limit: int = DEFAULT_NEEDS_LIMIT
    """How many jobs of its pipeline a job may need, each part of a parallel job counted."""
    pipelines_per_push: int = 20
    """How many pipelines one push may start; further branches and tags start none."""
    shell_limit_bytes: int = 64 * MEBIBYTE
    """How many bytes a shell in a job may carry in each direction."""
    shell_idle_seconds: float = 1800
    """A shell ends if nothing is typed or printed for this time."""
    web: WebSettings = WebSettings()
    """The table `[web]`: the web pages."""
    stop_seconds: int = 5
    """How long a stop waits for requests in progress."""

    def __post_init__(self) -> None:
        if self.cell_id < 1:
            raise CellError(f"cell id {self.cell_id}: must be a positive number")
        if self.database not in ("", "sqlite://") and not self.database.startswith(("postgresql://", "postgres://")):
            # Without the value: it may hold a password.
            raise CellError(
                "database: must start with postgresql://; leave it out to use the file cell.sqlite in the data folder"
            )
        if not 0 <= self.port <= 65535:
            raise CellError(f"port {self.port}: must be a number from 0 to 65535")
        if self.public_url and urlsplit(self.public_url).scheme not in ("http", "https"):
            raise CellError(f"public URL {self.public_url!r}: must start with http:// or https://")
        _check_tls(self.tls_certificate, self.tls_key, self.trusted_proxies)
        for name in setting_fields():
            range_text = describe_number(name)
            value = self.value_of(name)
            if range_text and not is_valid_number(name, value):
                raise CellError(f"{name} {value}: {range_text}")
        _check_included_files(self.remote_includes, self.templates)
        _check_blobs(self.blobs, self.blobs_endpoint)
        if self.job_tokens not in ("signed", OPAQUE):
            raise CellError(f"job tokens {self.job_tokens!r}: must be signed or opaque")
        if self.registry and not _is_address(self.registry):
            raise CellError(
                f"registry {self.registry!r}: must be an address without a path, such as https://registry.example"
            )
        if self.artifacts_expire_in != "never" and parse_duration(self.artifacts_expire_in) is None:
            raise CellError(
                f'artifacts expire in {self.artifacts_expire_in!r}: must be a duration such as "30 days", or "never"'
            )
        if self.audit_expire_in != "never" and parse_duration(self.audit_expire_in) is None:
            raise CellError(
                f'audit expire in {self.audit_expire_in!r}: must be a duration such as "1 year", or "never"'
            )
        for name in ("pipelines_per_push", "needs_limit"):
            if getattr(self, name) < 0:
                raise CellError(f"{name.replace('_', ' ')} {getattr(self, name)}: must be a number of at least 0")
        if self.admin_token is not None and len(self.admin_token) < 8:
            raise CellError("the administrator's token is too short: give at least 8 characters, better 20")

    def value_of(self, name: str) -> Any:
        """The value of a setting by its name in `setting_fields`, such as `web.enabled`."""
        return attrgetter(name)(self)

    @property
    def is_shared(self) -> bool:
        """True if several processes can serve this cell at the same time, which needs a PostgreSQL database."""
        return self.database.startswith("postgres")

    @property
    def url(self) -> str:
        """The public address (URL) of the cell without a trailing slash."""
        scheme = "http" if self.tls_certificate is None else "https"
        return (self.public_url or f"{scheme}://{_url_host(self.host)}:{self.port}").rstrip("/")

    @property
    def registry_host(self) -> str:
        """The host (and port) with which image names of the container registry begin; empty without a registry."""
        return urlsplit(self.registry).netloc

    def with_port(self, port: int) -> "CellSettings":
        """Return a copy with the port that was actually bound, and with `public_url` for it."""
        settings = msgspec.structs.replace(self, port=port)
        return msgspec.structs.replace(settings, public_url=settings.url)


def _check_tls(certificate: Path | None, key: Path | None, trusted_proxies: tuple[str, ...]) -> None:
    if key is not None and certificate is None:
        raise CellError("tls_key: needs a certificate; set tls_certificate, too")
    for proxy in trusted_proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as error:
            raise CellError(
                f"trusted proxies {proxy!r}: must be an IP address or a network such as 10.0.0.0/8 ({error})"
            ) from None


def _is_address(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path in ("", "/") and "@" not in text


BUCKETS = ("s3", "gs", "az")
"""The schemes of bucket addresses in `blobs`."""


def _check_included_files(remote_includes: tuple[str, ...], templates: str) -> None:
    for address in remote_includes:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise CellError(
                f"remote includes {address!r}: must be the beginning of an address, such as https://host/folder/"
            )
    if templates and read_prefix(templates) is None and not Path(templates).is_dir():
        raise CellError(
            f"templates {templates!r}: must be a folder that exists, or an address such as https://gitlab.com"
        )


def _check_blobs(blobs: str, endpoint: str) -> None:
    parts = urlsplit(blobs)
    if blobs and not blobs.startswith("/") and (parts.scheme not in BUCKETS or not parts.netloc or "@" in parts.netloc):
        raise CellError(
            f"blobs {blobs!r}: must be s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or the whole path "
            "of a folder; set credentials in the provider's environment variables"
        )
    if endpoint and (urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname):
        raise CellError(f"blobs endpoint {endpoint!r}: must start with http:// or https://")
    if endpoint and not parts.scheme:
        raise CellError("blobs endpoint: needs a bucket; give blobs, too, for example s3://bucket/prefix")


_MAY_BE_ZERO = frozenset(
    {"poll_hold_seconds", "other_poll_hold_seconds", "stop_seconds", "lfs_project_limit_bytes"}
    | {"requests_per_minute", "anonymous_requests_per_minute", "job_requests_per_minute"}
)


def is_valid_number(name: str, value: float) -> bool:
    """True if the value is valid for the duration or limit `name`: finite and above 0; some settings may also be 0."""
    return math.isfinite(value) and (value > 0 or (value == 0 and name in _MAY_BE_ZERO))


def describe_number(name: str) -> str | None:
    """Describe the valid values of the duration or limit `name`, for error messages; None for other settings."""
    if not name.endswith(("_seconds", "_bytes", "_variables", "_per_minute", "_depth", "_elements", "_entries")):
        return None
    field = setting_fields()[name]
    kind = "a whole number" if field.type is int else "a number"
    least = "of at least 0" if name in _MAY_BE_ZERO else "above 0"
    return f"must be {kind} {least}, for example {field.default}"


@cache
def setting_fields() -> dict[str, msgspec.structs.FieldInfo]:
    """Return all settings by name, those of tables with the names of the tables: `web.oidc.issuer`. Cached, because
    msgspec's look-up is slow."""
    return dict(_list_fields(CellSettings))


def _list_fields(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, msgspec.structs.FieldInfo]]:
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _list_fields(field.type, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field


def _url_host(host: str) -> str:
    if host in ("", "0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
