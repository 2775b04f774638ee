"""Types for the autoscaling sections: `[runners.autoscaler]`, `[runners.instance]` and the older `[runners.machine]`.

A runner with a fixed list of machines (`[[runners.remuda.machines]]`) creates no machines; the list takes
`capacity_per_instance`, `max_use_count` and the login of `connector_config` as defaults."""

from typing import Any

import msgspec

Span = str | float
"""A duration as written in the file; `remuda.lib.durations` parses it."""


class AutoscalerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[runners.autoscaler.policy]]`: how much idle capacity is kept at which times. The last match applies."""

    periods: tuple[str, ...] = ("* * * * *",)
    timezone: str = ""
    idle_count: int = 0
    """Number of jobs, not of machines."""
    idle_time: Span = ""
    scale_factor: float = 0.0
    scale_factor_limit: int = 0
    preemptive_mode: bool | None = None


class ConnectorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`connector_config`: how the manager logs in to machines."""

    os: str = ""
    arch: str = ""
    protocol: str = ""
    protocol_port: int = 0
    username: str = ""
    password: str = ""
    key_path: str = ""
    use_static_credentials: bool = False
    keepalive: Span = ""
    timeout: Span = ""
    use_external_addr: bool = False


class ScaleThrottle(msgspec.Struct, frozen=True, kw_only=True):
    limit: int = 0
    burst: int = 0


class StateStorage(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = False
    dir: str = ""
    keep_instance_with_acquisitions: bool = False


class VmIsolation(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = False
    nesting_host: str = ""
    nesting_config: dict[str, Any] = {}
    image: str = ""
    connector_config: ConnectorConfig = ConnectorConfig()


class AutoscalerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The section `[runners.autoscaler]`, with gitlab-runner's keys: machines that a plugin creates for jobs."""

    capacity_per_instance: int = 0
    max_use_count: int = 0
    max_instances: int = 0
    plugin: str = ""
    plugin_config: dict[str, Any] = {}
    instance_ready_command: str = ""
    instance_acquire_timeout: Span = ""
    update_interval: Span = ""
    update_interval_when_expecting: Span = ""
    deletion_retry_interval: Span = ""
    shutdown_deletion_interval: Span = ""
    shutdown_deletion_retries: int = 0
    failure_threshold: int = 0
    delete_instances_on_shutdown: bool = False
    reservation_throttling: bool | None = None
    log_internal_ip: bool = False
    log_external_ip: bool = False
    scale_throttle: ScaleThrottle = ScaleThrottle()
    connector_config: ConnectorConfig = ConnectorConfig()
    state_storage: StateStorage = StateStorage()
    vm_isolation: VmIsolation = VmIsolation()
    policy: tuple[AutoscalerPolicy, ...] = ()


class FallbackConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[runners.remuda.fallback]]`: a group of machines that is used when the groups before it have no capacity.
    The keys mean the same as in `[runners.autoscaler]`, whose `connector_config`, `capacity_per_instance`,
    `max_use_count` and `failure_threshold` apply to a group that does not set them."""

    name: str = ""
    """The group's name in messages and in stored states. Default: the plugin's name."""
    plugin: str = ""
    plugin_config: dict[str, Any] = {}
    connector_config: ConnectorConfig | None = None
    capacity_per_instance: int = 0
    max_use_count: int = 0
    max_instances: int = 0
    failure_threshold: int = 0
    scale_throttle: ScaleThrottle = ScaleThrottle()


class InstanceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The section `[runners.instance]`, for nested virtual machines."""

    allowed_images: tuple[str, ...] = ()
    """Images of nested virtual machines that jobs may choose."""
    use_common_build_dir: bool = False


class MachineAutoscaling(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One `[[runners.machine.autoscaling]]`: how many idle machines are kept at which times. The last match applies."""

    periods: tuple[str, ...] = ()
    """Cron expressions with seconds and years: seven fields."""
    timezone: str = ""
    idle_count: int = 0
    idle_scale_factor: float = 0.0
    idle_count_min: int = 0
    idle_time: int = 0


class MachineConfig(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The section `[runners.machine]`, with gitlab-runner's keys: machines that Docker Machine creates for jobs."""

    max_growth_rate: int = 0
    idle_count: int = 0
    idle_scale_factor: float = 0.0
    idle_count_min: int = 0
    idle_time: int = 0
    max_builds: int = 0
    machine_name: str = ""
    machine_driver: str = ""
    machine_options: tuple[str, ...] = ()
    machine_options_with_name: tuple[str, ...] = ()
    max_removal_attempts: int = 0
    off_peak_periods: tuple[str, ...] = ()
    off_peak_timezone: str = ""
    off_peak_idle_count: int = 0
    off_peak_idle_time: int = 0
    autoscaling: tuple[MachineAutoscaling, ...] = msgspec.field(default=(), name="autoscaling")


def as_autoscaler(machine: MachineConfig, *, limit: int) -> AutoscalerConfig:
    """Convert to a `[runners.autoscaler]` section with the plugin `docker-machine`. `limit` is the runner's limit of
    jobs, also used for machines. Times (`periods`) stay in Docker Machine's form, with more fields than cron."""

    def policy(section: MachineConfig | MachineAutoscaling, periods: tuple[str, ...], zone: str) -> AutoscalerPolicy:
        has_factor = section.idle_scale_factor > 0
        return AutoscalerPolicy(
            periods=periods,
            timezone=zone,
            # With a factor, IdleCount is the maximum and IdleCountMin the minimum; else IdleCount is the number itself.
            idle_count=max(section.idle_count_min, 1) if has_factor else section.idle_count,
            idle_time=f"{section.idle_time}s" if section.idle_time else "",
            scale_factor=section.idle_scale_factor,
            scale_factor_limit=section.idle_count if has_factor else 0,
        )

    policies = [policy(machine, ("* * * * *",), "")]
    if machine.off_peak_periods:
        policies.append(
            AutoscalerPolicy(
                periods=machine.off_peak_periods,
                timezone=machine.off_peak_timezone,
                idle_count=machine.off_peak_idle_count,
                idle_time=f"{machine.off_peak_idle_time}s" if machine.off_peak_idle_time else "",
            )
        )
    policies += [policy(section, section.periods, section.timezone) for section in machine.autoscaling]
    return AutoscalerConfig(
        capacity_per_instance=1,
        max_use_count=machine.max_builds,
        max_instances=limit,
        plugin="docker-machine",
        plugin_config={
            "machine_name": machine.machine_name,
            "machine_driver": machine.machine_driver,
            "machine_options": list(machine.machine_options),
            "machine_options_with_name": list(machine.machine_options_with_name),
        },
        policy=tuple(policies),
    )
