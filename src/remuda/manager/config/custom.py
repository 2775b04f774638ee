"""Type and checks for `[runners.custom]`: the operator's programs for GitLab's custom-executor protocol."""

import msgspec

from remuda.manager.errors import ConfigError

DEFAULT_EXEC_SECONDS = 3600
DEFAULT_GRACEFUL_SECONDS = 600
DEFAULT_FORCE_SECONDS = 600


class CustomConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The section `[runners.custom]`. Times are in seconds; 0 means the default."""

    config_exec: str = ""
    config_args: tuple[str, ...] = ()
    config_exec_timeout: int = 0
    prepare_exec: str = ""
    prepare_args: tuple[str, ...] = ()
    prepare_exec_timeout: int = 0
    run_exec: str = ""
    run_args: tuple[str, ...] = ()
    cleanup_exec: str = ""
    cleanup_args: tuple[str, ...] = ()
    cleanup_exec_timeout: int = 0
    graceful_kill_timeout: int = 0
    """Time between SIGTERM and SIGKILL."""
    force_kill_timeout: int = 0
    """How long to wait after SIGKILL."""

    @property
    def config_seconds(self) -> int:
        return self.config_exec_timeout or DEFAULT_EXEC_SECONDS

    @property
    def prepare_seconds(self) -> int:
        return self.prepare_exec_timeout or DEFAULT_EXEC_SECONDS

    @property
    def cleanup_seconds(self) -> int:
        return self.cleanup_exec_timeout or DEFAULT_EXEC_SECONDS

    @property
    def graceful_seconds(self) -> int:
        return self.graceful_kill_timeout or DEFAULT_GRACEFUL_SECONDS

    @property
    def force_seconds(self) -> int:
        return self.force_kill_timeout or DEFAULT_FORCE_SECONDS


def check(custom: CustomConfig, where: str) -> None:
    if not custom.run_exec:
        raise ConfigError(f"{where}.run_exec: is missing; name the program that runs the parts of a job")
    for field in msgspec.structs.fields(CustomConfig):
        value = getattr(custom, field.name)
        if isinstance(value, int) and value < 0:
            raise ConfigError(f"{where}.{field.name}: {value} is below 0")
