"""A store that encrypts secrets. It wraps another store: it seals (encrypts) secrets in the values that it passes to
that store, and opens (decrypts) them in the values that come back.

Secrets are the values of variables, the inputs of schedules, the tokens of webhooks, the deploy token for jobs, the
specs of jobs (except what the store itself must read), all settings, and the keys that sign tokens. Names, states,
times and paths are no secrets: queries need them.

What is sealed depends on the type of a value and not on the method, so a new method of the store needs no code here. A
map of values is sealed as one text, which is stored in the map under the empty name."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from remuda.cell.secrets.sealing import Seals
from remuda.cell.store.ports import (
    DeploymentStore,
    HookStore,
    JobStore,
    LfsStore,
    PeopleStore,
    PipelineStore,
    ProjectStore,
    RunnerStore,
    ScheduleStore,
    SettingStore,
    Store,
)
from remuda.cell.values import Artifact, Family, Job, NewJob, Pipeline, ProjectVariable, Schedule
from remuda.cell.values.changes import Applied, Changes, JobArtifacts, PayloadParts, Retry
from remuda.cell.values.hooks import DeployToken, Hook
from remuda.pipeline import Environment, JobSpec, Trigger

_PLAIN = frozenset({int, str, float, bool, type(None)})
SETTING = "setting"
SIGNING_KEY = "signing key"
FIELDS: Mapping[type[Any], tuple[str, ...]] = {
    ProjectVariable: ("value",),
    Pipeline: ("variables",),
    Schedule: ("variables", "inputs"),
    Job: ("play_variables", "inputs"),
    Artifact: ("variables",),
    JobSpec: ("variables",),
    DeployToken: ("secrets",),
    Hook: ("secrets",),
}
"""The secret fields of each type of value. The field `variables` of a sealed spec contains the whole spec."""

_encode = msgspec.json.Encoder().encode
_map_of = msgspec.json.Decoder(dict[str, Any]).decode
_spec_of = msgspec.json.Decoder(JobSpec).decode


class Secrets:
    """Encrypts ("seals") and decrypts ("opens") the secret parts of values, depending on their types."""

    def __init__(self, seals: Seals) -> None:
        self.seals = seals
        self.seal = seals.seal
        self.unseal = seals.unseal
        self._into = self._by_type(self.seal_value)
        self._outof = self._by_type(self.open_value)

    def seal_value(self, value: Any) -> Any:
        """Encrypt the secrets in a value. A function is wrapped: it gets decrypted values, its result is encrypted."""
        change = self._into.get(type(value))
        if change is not None:
            return change(value)
        if callable(value):
            return lambda *values: self.seal_value(value(*map(self.open_value, values)))
        return value

    def open_value(self, value: Any) -> Any:
        change = self._outof.get(type(value))
        return value if change is None else change(value)

    def is_current(self, value: Any) -> bool:
        """True if all secrets of a stored value are encrypted with the current key."""
        if isinstance(value, str):
            return self.seals.is_current(value)
        return all(self._field_is_current(getattr(value, name)) for name in FIELDS[type(value)])

    def _field_is_current(self, field: Any) -> bool:
        if isinstance(field, dict):
            return not field or (set(field) == {""} and self.seals.is_current(field[""]))
        return self.seals.is_current(field)

    def _by_type(self, convert: Callable[[Any], Any]) -> dict[type[Any], Callable[[Any], Any]]:
        is_sealing = convert == self.seal_value
        return {
            list: lambda values: [convert(value) for value in values],
            tuple: lambda values: tuple([convert(value) for value in values]),
            ProjectVariable: self._seal_variable if is_sealing else self._open_variable,
            Pipeline: self._seal_maps if is_sealing else self._open_maps,
            Schedule: self._seal_maps if is_sealing else self._open_maps,
            Artifact: self._seal_maps if is_sealing else self._open_maps,
            DeployToken: self._seal_maps if is_sealing else self._open_maps,
            Hook: self._seal_maps if is_sealing else self._open_maps,
            Job: self._seal_job if is_sealing else self._open_job,
            JobSpec: self._seal_spec if is_sealing else self._open_spec,
            NewJob: lambda new: replace(new, spec=convert(new.spec)),
            Retry: lambda retry: replace(retry, job=convert(retry.job)),
            JobArtifacts: lambda row: replace(row, job=convert(row.job), artifacts=convert(row.artifacts)),
            Family: lambda family: replace(
                family, pipeline=convert(family.pipeline), jobs=_convert_jobs(convert, family.jobs)
            ),
            Applied: lambda applied: replace(
                applied, pipeline=convert(applied.pipeline), jobs=_convert_jobs(convert, applied.jobs)
            ),
            PayloadParts: lambda parts: replace(
                parts,
                spec=convert(parts.spec),
                pipeline=convert(parts.pipeline),
                variables=convert(parts.variables),
                settings={name: self.unseal(value, SETTING) for name, value in parts.settings.items()},
            ),
            Changes: lambda changes: replace(
                changes,
                pipeline=convert(changes.pipeline),
                jobs=_convert_jobs(convert, changes.jobs),
                retries=convert(changes.retries),
            ),
        }

    def _seal_variable(self, variable: ProjectVariable) -> ProjectVariable:
        return replace(variable, value=self.seal(variable.value, "ProjectVariable"))

    def _open_variable(self, variable: ProjectVariable) -> ProjectVariable:
        return replace(variable, value=self.unseal(variable.value, "ProjectVariable"))

    def _seal_job(self, job: Job) -> Job:
        """Encrypt the variables and inputs that a user started this job with. Most jobs have none."""
        return cast("Job", self._seal_maps(job)) if job.play_variables or job.inputs else job

    def _open_job(self, job: Job) -> Job:
        return cast("Job", self._open_maps(job)) if job.play_variables or job.inputs else job

    def _seal_maps(self, value: Any) -> Any:
        kind = type(value)
        for name in FIELDS[kind]:
            if field := getattr(value, name):
                value = replace(value, **{name: {"": self.seal(_encode(field).decode(), kind.__name__)}})
        return value

    def _open_maps(self, value: Any) -> Any:
        kind = type(value)
        for name in FIELDS[kind]:
            if (field := getattr(value, name)) and "" in field:
                value = replace(value, **{name: _map_of(self.unseal(field[""], kind.__name__))})
        return value

    def _seal_spec(self, spec: JobSpec) -> JobSpec:
        """Encrypt a job's spec as one text; fields that `core.jobs.lifecycle.new_job` reads also stay readable."""
        return JobSpec(
            name=spec.name,
            stage=spec.stage,
            stage_index=spec.stage_index,
            line=spec.line,
            script=(),
            variables={"": self.seal(_encode(spec).decode(), "JobSpec")},
            needs=None if spec.needs is None else (),
            allow_failure=spec.allow_failure,
            tags=spec.tags,
            when=spec.when,
            timeout_seconds=spec.timeout_seconds,
            retry_max=spec.retry_max,
            retry_when=spec.retry_when,
            allow_failure_exit_codes=spec.allow_failure_exit_codes,
            retry_exit_codes=spec.retry_exit_codes,
            start_in_seconds=spec.start_in_seconds,
            interruptible=spec.interruptible,
            environment=spec.environment and Environment(name="", action=spec.environment.action),
            trigger=spec.trigger and Trigger(),
        )

    def _open_spec(self, spec: JobSpec) -> JobSpec:
        return _spec_of(self.unseal(spec.variables[""], "JobSpec")) if "" in spec.variables else spec


def _convert_jobs(convert: Callable[[Any], Any], jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Return `jobs` with each one encrypted or decrypted by `convert`. If no job has a secret, which is usual, the same
    tuple is returned: this must be fast, because all jobs of a pipeline are read for each change of one job."""
    return tuple([convert(job) for job in jobs]) if [job for job in jobs if job.play_variables or job.inputs] else jobs


class _SealedPort:
    """Wraps one part of a store, such as `JobStore`: encrypts the secrets in arguments, decrypts those in results."""

    def __init__(self, port: Any, secrets: Secrets) -> None:
        self._port = port
        self._secrets = secrets

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        seal, open_ = self._secrets.seal_value, self._secrets.open_value

        async def call(*values: Any, **named: Any) -> Any:
            # Most calls pass only numbers and names, which are no secrets.
            passed = [value if type(value) in _PLAIN else seal(value) for value in values]
            if not named:
                return open_(await method(*passed))
            return open_(await method(*passed, **{name: seal(value) for name, value in named.items()}))

        self.__dict__[name] = call
        return call


class _SealedSettings(_SealedPort):
    """Wraps the store of settings and signing keys, whose types do not show secrets: methods encrypt explicitly."""

    async def load_signing_keys(self) -> Mapping[str, bytes]:
        stored = await self._port.load_signing_keys()
        return {kid: self._secrets.unseal(pem.decode(), SIGNING_KEY).encode() for kid, pem in stored.items()}

    async def add_signing_key(self, kid: str, pem: bytes) -> None:
        await self._port.add_signing_key(kid, self._secrets.seal(pem.decode(), SIGNING_KEY).encode())

    async def load_setting(self, name: str) -> str | None:
        return self._open(await self._port.load_setting(name))

    async def put_setting(self, name: str, value: str) -> None:
        await self._port.put_setting(name, self._secrets.seal(value, SETTING))

    async def load_settings(self, names: Collection[str]) -> Mapping[str, str]:
        stored = await self._port.load_settings(names)
        return {name: self._secrets.unseal(value, SETTING) for name, value in stored.items()}

    async def change_setting(self, name: str, decide: Callable[[str | None], str | None]) -> str | None:
        def decide_sealed(stored: str | None) -> str | None:
            changed = decide(self._open(stored))
            return None if changed is None else self._secrets.seal(changed, SETTING)

        return self._open(await self._port.change_setting(name, decide_sealed))

    def _open(self, stored: str | None) -> str | None:
        return None if stored is None else self._secrets.unseal(stored, SETTING)


class SealedStore(Store):
    """Wraps a store so that its database contains no readable secret."""

    def __init__(self, store: Store, seals: Seals) -> None:
        secrets = Secrets(seals)
        self.jobs = cast("JobStore", _SealedPort(store.jobs, secrets))
        self.pipelines = cast("PipelineStore", _SealedPort(store.pipelines, secrets))
        self.projects = cast("ProjectStore", _SealedPort(store.projects, secrets))
        self.schedules = cast("ScheduleStore", _SealedPort(store.schedules, secrets))
        self.deployments = cast("DeploymentStore", _SealedPort(store.deployments, secrets))
        self.settings = cast("SettingStore", _SealedSettings(store.settings, secrets))
        self.people = cast("PeopleStore", _SealedPort(store.people, secrets))
        self.runner_listeners = store.runner_listeners
        self.runners = cast("RunnerStore", _SealedPort(store.runners, secrets))
        self.lfs = cast("LfsStore", _SealedPort(store.lfs, secrets))
        self.hooks = cast("HookStore", _SealedPort(store.hooks, secrets))
        self.sessions = store.sessions
        self.database = store.database
