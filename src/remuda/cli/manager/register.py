"""`remuda manager register`: adds a runner to a configuration file."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import check_token
from remuda.cli.options import ConfigToml
from remuda.lib import event_loop
from remuda.lib.exits import BadInputError

Texts = tuple[str, ...]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options for settings of the new runner at the server, such as tags; only used with a registration token."""

    tag_list: Annotated[
        str,
        Parameter(
            help="Tags, separated by commas. Only with a registration token, like the next six options.",
            env_var="RUNNER_TAG_LIST",
        ),
    ] = ""
    run_untagged: Annotated[
        bool | None, Parameter(help="Take jobs without tags [default: if there are no tags].", negative="")
    ] = None
    locked: Annotated[
        bool | None,
        Parameter(help="Lock the runner to its project; --locked=false disables this [default: true].", negative=""),
    ] = None
    paused: Annotated[bool | None, Parameter(help="Create the runner paused.", negative="")] = None
    access_level: Annotated[str, Parameter(help="not_protected or ref_protected.")] = ""
    maximum_timeout: Annotated[int, Parameter(help="Maximum duration of a job, in seconds.")] = 0
    maintenance_note: Annotated[str, Parameter(help="Note for administrators.")] = ""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SectionOptions:
    """Options that become keys of the new [[runners]] section."""

    limit: Annotated[int, Parameter(help="Maximum number of jobs at the same time.", env_var="RUNNER_LIMIT")] = 0
    request_concurrency: Annotated[int, Parameter(help="Maximum number of job requests at the same time.")] = 0
    builds_dir: Annotated[str, Parameter(help="Folder for working directories.")] = ""
    cache_dir: Annotated[str, Parameter(help="Folder for caches.")] = ""
    clone_url: Annotated[str, Parameter(help="Address of the server for git.")] = ""
    env: Annotated[Texts, Parameter(help="Variable of every job, NAME=value. Can be repeated.", negative="")] = ()
    tls_ca_file: Annotated[
        str, Parameter(help="CA file for the server's certificate.", env_var="CI_SERVER_TLS_CA_FILE")
    ] = ""
    tls_cert_file: Annotated[str, Parameter(help="Client certificate of the runner.")] = ""
    tls_key_file: Annotated[str, Parameter(help="Key of the client certificate.")] = ""
    docker_image: Annotated[str, Parameter(help="Image of jobs without an image.", env_var="DOCKER_IMAGE")] = ""
    docker_host: Annotated[str, Parameter(help="Address of the container engine.")] = ""
    docker_privileged: Annotated[bool, Parameter(help="Run privileged containers.", negative="")] = False
    docker_volumes: Annotated[Texts, Parameter(help="Volume of every job. Can be repeated.", negative="")] = ()
    docker_pull_policy: Annotated[Texts, Parameter(help="Pull policy. Can be repeated.", negative="")] = ()
    docker_network_mode: Annotated[str, Parameter(help="Network mode of containers.")] = ""
    docker_allowed_images: Annotated[
        Texts, Parameter(help="Pattern of images that jobs may use. Can be repeated.", negative="")
    ] = ()
    ssh_host: Annotated[str, Parameter(help="Host of the ssh executor.")] = ""
    ssh_port: Annotated[int, Parameter(help="SSH port.")] = 0
    ssh_user: Annotated[str, Parameter(help="SSH user.")] = ""
    ssh_identity_file: Annotated[str, Parameter(help="File with the SSH private key.")] = ""
    custom_config_exec: Annotated[str, Parameter(help="Program of the custom executor for the config stage.")] = ""
    custom_prepare_exec: Annotated[str, Parameter(help="Program for the prepare stage.")] = ""
    custom_run_exec: Annotated[str, Parameter(help="Program for the run stage.")] = ""
    custom_cleanup_exec: Annotated[str, Parameter(help="Program for the cleanup stage.")] = ""

    def values(self) -> dict[str, Any]:
        section: dict[str, Any] = {}
        for name, value in vars(self).items():
            if not value:
                continue
            kind, _, key = name.partition("_")
            plain = list(value) if isinstance(value, tuple) else value
            if kind in ("docker", "ssh", "custom"):
                section.setdefault(kind, {})[key] = plain
            elif kind == "tls":
                section[name.replace("_", "-")] = plain
            else:
                section["environment" if name == "env" else name] = plain
        return section


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """Options for token and name of the new runner, and a template file with more keys of its [[runners]] section."""

    token: Annotated[
        str, Parameter(help="Token of a runner that was created on the server (glrt-).", env_var="CI_SERVER_TOKEN")
    ] = ""

    registration_token: Annotated[
        str,
        Parameter(help="Registration token, instead of --token. Creates a new runner.", env_var="REGISTRATION_TOKEN"),
    ] = ""
    executor: Annotated[
        str,
        Parameter(
            help="shell, docker, ssh, instance, docker-autoscaler, docker+machine, custom or plugin.",
            env_var="RUNNER_EXECUTOR",
        ),
    ] = "shell"
    name: Annotated[
        str,
        Parameter(
            name=["--name", "--description"],
            help="Name of the runner [default: the name of this machine].",
            env_var="RUNNER_NAME",
        ),
    ] = ""
    template_config: Annotated[
        Path | None,
        Parameter(
            help="File with one [[runners]] section, for keys that no option sets.", env_var="TEMPLATE_CONFIG_FILE"
        ),
    ] = None
    set_: Annotated[
        Texts,
        Parameter(
            name="--set", help="Any other key of the section, such as docker.memory=2g. Can be repeated.", negative=""
        ),
    ] = ()
    non_interactive: Annotated[
        bool, Parameter(help="No effect; accepted for compatibility with gitlab-runner.", negative="")
    ] = False


_NO_RUNNER_OPTIONS = RunnerOptions()
_NO_SERVER_OPTIONS = ServerOptions()
_NO_SECTION_OPTIONS = SectionOptions()


def register(
    *,
    url: Annotated[str, Parameter(help="Address of the cell or GitLab server.", env_var="CI_SERVER_URL")],
    config: ConfigToml,
    runner: RunnerOptions = _NO_RUNNER_OPTIONS,
    server: ServerOptions = _NO_SERVER_OPTIONS,
    section: SectionOptions = _NO_SECTION_OPTIONS,
) -> None:
    """Add a runner to a configuration file, after the server has confirmed its token.

    The token belongs to a runner that was created on the server (`remuda runner create`, or GitLab's web page),
    where its tags and similar settings are stored. The registration token of an older server creates a new runner
    with the tags given here. Comments in the file are kept; only its owner can read the file. The command asks no
    questions, so scripts can use it. Exit code 2, without a change, if the server refuses the token.

    Try:

        remuda manager register --url http://127.0.0.1:8929 --token glrt-... --config config.toml
        remuda manager register --url https://gitlab.example.com --token glrt-... --config config.toml \\
            --executor docker --docker-image alpine:3 --limit 4 --set docker.memory=2g
        CI_SERVER_URL=https://gitlab.example.com REGISTRATION_TOKEN=... \\
            remuda manager register --config config.toml --tag-list linux,big --locked
    """
    from remuda.manager.registration.register import Registration, merge
    from remuda.manager.registration.register import register as register_runner

    token = runner.token or runner.registration_token
    if not token:
        raise BadInputError("--token is empty; create a runner on the server and give its glrt- token")
    check_token(token, "--token")
    registration = Registration(
        url=url,
        token=token,
        executor=runner.executor,
        name=runner.name,
        template=runner.template_config,
        values=merge(section.values(), parse_assignments(runner.set_)),
        tags=tuple(tag.strip() for tag in server.tag_list.split(",") if tag.strip()),
        run_untagged=server.run_untagged,
        locked=server.locked,
        paused=server.paused,
        access_level=server.access_level,
        maximum_timeout=server.maximum_timeout,
        maintenance_note=server.maintenance_note,
    )
    number = event_loop.run(register_runner(config.absolute(), registration))
    print(f"runner {number} of {url} is in {config}; start it with: remuda manager run --config {config}")


def parse_assignments(assignments: Texts) -> dict[str, Any]:
    """Parse KEY=VALUE options, nested at the dots of KEY. A value that is not valid TOML is a string."""
    from remuda.manager.registration.register import merge

    section: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BadInputError(f"--set {text}: write KEY=VALUE, for example docker.memory=2g")
        try:
            part: Any = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            part = value
        for name in reversed(key.strip().split(".")):
            part = {name: part}
        section = merge(section, part)
    return section
