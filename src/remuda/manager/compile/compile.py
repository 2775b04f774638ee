"""Compiles a server's payload to the agent's `JobStart`: steps, variables, masks, banner. Pure code without I/O.

Other modules create the steps, this one joins them in one list; the agent decides at run time which of them run. The
banner, the first lines of the job's log, warns about requests of the payload that are not supported."""

import json
import platform
import re
from collections.abc import Iterable, Sequence

from remuda import __version__
from remuda.lib.masking import TOKEN_PREFIXES
from remuda.manager.compile.containers import (
    Containers,
    container_remarks,
    hooks_in_container,
    ignored_containers,
    image_of,
    wrap_in_container,
)
from remuda.manager.compile.custom import custom_remarks, custom_steps, driver_order, is_custom, with_placeholders
from remuda.manager.compile.debug_trace import has_trace, trace_remarks, trace_scripts
from remuda.manager.compile.secrets import resolve_secrets
from remuda.manager.compile.sources import get_sources, source_remarks
from remuda.manager.compile.step_entries import Entry, Setting
from remuda.manager.compile.step_policy import policy_text
from remuda.manager.compile.stored_files import (
    cache_remarks,
    download_artifacts,
    restore_caches,
    save_caches,
    upload_artifacts,
)
from remuda.manager.compile.user_steps import user_steps
from remuda.manager.compile.variables import Variables, variable_list
from remuda.manager.config.values import RunnerConfig
from remuda.wire.agent_client import JobStart, JobVariable
from remuda.wire.runner_api import JobPayload, Variable

DEFAULT_TIMEOUT_SECONDS = 7200
SERVER_CA = "CI_SERVER_TLS_CA_FILE"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def compile_job(payload: JobPayload, setting: Setting) -> JobStart:
    """Convert a job from the server to the request that starts it at an agent. Raises CompileError if it cannot run."""
    timeout = payload.runner_info.timeout if payload.runner_info.timeout > 0 else DEFAULT_TIMEOUT_SECONDS
    configured = setting
    if is_custom(setting.runner):
        setting = with_placeholders(setting)
    variables = Variables(all_variables(payload, setting, timeout))
    expanded = variables.expand_all()
    sendable = [variable for variable in expanded if _NAME.fullmatch(variable.key) and "\0" not in variable.value]
    dropped = len(expanded) - len(sendable)
    if is_custom(setting.runner):
        entries, scripts = custom_steps(payload, setting, variables)
        sendable = [driver_order(payload, configured, sendable, scripts)]
    else:
        entries = _entries(payload, setting, variables, timeout)
    return JobStart(
        id=configured.key,
        work_dir=configured.work_dir,
        steps=f"{json.dumps({'spec': {'remuda': 1}})}\n---\n{json.dumps({'run': entries})}",
        variables=[
            JobVariable(key=variable.key, value=variable.value, file=variable.file, masked=variable.masked)
            for variable in sendable
        ],
        masks=_masks(payload, expanded),
        mask_prefixes=tuple(dict.fromkeys([*TOKEN_PREFIXES, *_prefixes(payload)])),
        timeout_seconds=timeout,
        log_limit_bytes=setting.runner.output_limit * 1024,
        policy=policy_text(payload, configured, lambda: runner_variables(payload, configured, timeout)),
        banner=(
            f"Running with remuda {__version__}",
            f"  on {setting.runner.name} {setting.runner.short_token}, system ID: {setting.system_id}",
            *(f"WARNING: {text}" for text in _remarks(payload, configured, variables, dropped)),
        ),
    )


def _entries(payload: JobPayload, setting: Setting, variables: Variables, timeout: int) -> list[Entry]:
    runner = setting.runner
    job = _containers(payload, setting, variables, timeout) if runner.has_containers else None
    sources = get_sources(payload, runner, variables, cache_dir=setting.cache_dir)
    sources = trace_scripts(sources, runner, variables)
    if job is not None:
        sources = hooks_in_container(sources, job)
    before = [
        *resolve_secrets(payload, variables),
        *sources,
        *restore_caches(payload, setting, variables),
        *download_artifacts(payload, setting.runner),
    ]
    after = [
        *save_caches(payload, setting, variables),
        *upload_artifacts(payload, setting, variables),
    ]
    names = {step["name"] for step in (*before, *after)}
    work = trace_scripts(user_steps(payload, runner, variables, names), runner, variables)
    work, last = wrap_in_container(work, job) if job is not None else (work, [])
    return [*before, *work, *after, *last]


def _containers(payload: JobPayload, setting: Setting, variables: Variables, timeout: int) -> Containers:
    from remuda.manager.compile.server_variables import collect_trusted_variables, find_invented

    trusted = dict.fromkeys(find_invented(payload), "")
    trusted |= collect_trusted_variables(payload, setting, runner_variables(payload, setting, timeout))
    return Containers(
        payload=payload,
        runner=setting.runner,
        variables=variables,
        configured=variables.with_values(trusted),
        timeout=timeout,
        cgroup=setting.cgroup,
    )


def is_traced(payload: JobPayload, runner: RunnerConfig) -> bool:
    """True if the scripts of the job print their commands, so that its log may show secrets."""
    return has_trace(runner, Variables([*_environment(runner), *payload.variables]))


def job_warnings(payload: JobPayload, runner: RunnerConfig) -> tuple[str, ...]:
    """Return what the job asks for and does not get, in few words for lists of jobs. The banner has more."""
    return () if is_custom(runner) else tuple(ignored_containers(payload, runner))


def all_variables(payload: JobPayload, setting: Setting, timeout: int) -> list[Variable]:
    """Return all variables of a job, not expanded; later ones override earlier ones. The order: the runner's
    `environment`, its defaults, the payload's variables, values that jobs cannot override. `timeout` is in seconds."""
    authority = [Variable(key=SERVER_CA, value=setting.server_ca, public=True, file=True)] if setting.server_ca else []
    image = [Variable(key="CI_JOB_IMAGE", value=text)] if (text := _image(payload, setting)) else []
    defaults = variable_list(_defaults(setting, timeout))
    constants = variable_list(_runner_constants())
    return [*_environment(setting.runner), *defaults, *payload.variables, *image, *authority, *constants]


def runner_variables(payload: JobPayload, setting: Setting, timeout: int) -> dict[str, str]:
    """Return the predefined variables that the runner adds to those of the payload, without the runner's
    `environment`. `timeout` is the job's, in seconds."""
    image = {"CI_JOB_IMAGE": text} if (text := _image(payload, setting)) else {}
    return _defaults(setting, timeout) | image | _runner_constants()


def _defaults(setting: Setting, timeout: int) -> dict[str, str]:
    defaults = {
        "CI_BUILDS_DIR": setting.builds_dir,
        "CI_PROJECT_DIR": setting.work_dir,
        "CI_CONCURRENT_ID": str(setting.slot),
        "CI_CONCURRENT_PROJECT_ID": str(setting.slot),
        "CI_SERVER": "yes",
        "CI_JOB_TIMEOUT": str(timeout),
        "CI_RUNNER_SHORT_TOKEN": setting.runner.short_token,
        "RUNNER_TEMP_PROJECT_DIR": f"{setting.work_dir}.tmp",
    }
    if setting.cgroup:
        defaults |= {"GITLAB_RUNNER_SLOT_CGROUP": setting.cgroup}
    if setting.runner.has_containers:
        return defaults | {"CI_DISPOSABLE_ENVIRONMENT": "true"}
    return defaults | {"CI_SHARED_ENVIRONMENT": "true"}


def _runner_constants() -> dict[str, str]:
    return {
        "CI_RUNNER_VERSION": __version__,
        "CI_RUNNER_REVISION": __version__,
        "CI_RUNNER_EXECUTABLE_ARCH": f"{platform.system().lower()}/{platform.machine()}",
    }


def _image(payload: JobPayload, setting: Setting) -> str:
    has_image = setting.runner.has_containers or is_custom(setting.runner)
    return image_of(payload, setting.runner) if has_image else ""


def _environment(runner: RunnerConfig) -> list[Variable]:
    pairs = (entry.partition("=") for entry in runner.environment)
    return [Variable(key=key, value=value) for key, _, value in pairs]


def _masks(payload: JobPayload, expanded: Sequence[Variable]) -> tuple[str, ...]:
    """Return all secrets to hide in the log; variables expanded and unexpanded, because a script may print either."""
    secrets = [payload.token]
    secrets += [variable.value for variable in payload.variables if variable.masked]
    secrets += [variable.value for variable in expanded if variable.masked]
    secrets += [dependency.token for dependency in payload.dependencies or ()]
    secrets += [str(entry.get("password") or "") for entry in payload.credentials or ()]
    return tuple(dict.fromkeys(secret for secret in secrets if secret))


def _prefixes(payload: JobPayload) -> list[str]:
    return list(payload.features.token_mask_prefixes or ()) if payload.features else []


def _remarks(payload: JobPayload, setting: Setting, variables: Variables, dropped: int) -> Iterable[str]:
    """Yield warnings about parts of the payload without effect. `dropped` is the number of invalid variables."""
    if is_custom(setting.runner):
        yield from custom_remarks(setting)
    else:
        yield from container_remarks(payload, setting.runner)
    yield from cache_remarks(payload, setting.runner, variables)
    yield from source_remarks(variables)
    yield from trace_remarks(setting.runner, variables)
    if dropped:
        yield f"{dropped} variable(s) left out: names may have only letters, digits and _, values no NUL byte"
