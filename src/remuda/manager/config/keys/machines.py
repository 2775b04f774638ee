"""Facts about the sections of other executors: ssh, instance, autoscaler, Docker Machine, custom. Pure.

The sections that create machines apply to runners without a list of machines; a list takes its defaults from them.
"""

from dataclasses import replace
from typing import Any

from remuda.manager.config.keys.fact import Fact, Facts, differs, ignored, refused, refused_if_set, works

_BUCKETS = "the buckets are gitlab-runner's defaults, the same for all runners"
_NO_VM = "there are no nested virtual machines; jobs would run on the machine itself"

SSH: Facts = {
    "host": works("the machine that jobs run on", "needed"),
    "port": works("of SSH", "22"),
    "user": works("who logs in", "root"),
    "password": works("one of this and `identity_file` is needed"),
    "identity_file": works("private key"),
    "disable_strict_host_key_checking": differs(
        "where it is not set, the machine's key is checked; gitlab-runner takes any then", "false"
    ),
    "known_hosts_file": works("where the machine's key is looked up", "`~/.ssh/known_hosts`"),
}

INSTANCE: Facts = {
    "allowed_images": ignored("there are no nested virtual machines whose image a job could choose"),
    "use_common_build_dir": differs("always so: working directories are named after the project and the slot"),
}

CUSTOM: Facts = {
    "config_exec": works("program that says how jobs run: its JSON counts"),
    "config_args": works("its arguments"),
    "config_exec_timeout": works("seconds", "3600"),
    "prepare_exec": works("program that makes the environment ready"),
    "prepare_args": works("its arguments"),
    "prepare_exec_timeout": works("seconds", "3600"),
    "run_exec": works("program that runs a script of the job", "needed"),
    "run_args": works("its first arguments; the script's path and the part's name follow"),
    "cleanup_exec": works("program that clears up"),
    "cleanup_args": works("its arguments"),
    "cleanup_exec_timeout": works("seconds", "3600"),
    "graceful_kill_timeout": works("seconds between SIGTERM and SIGKILL", "600"),
    "force_kill_timeout": works("seconds that a program is waited for after SIGKILL", "600"),
}


def _protocol(value: Any) -> Fact | None:
    return None if value in ("", "ssh") else refused(f"{value!r} is not supported; machines are reached by ssh")


CONNECTOR: Facts = {
    "os": works("told to the plugin; the agent looks at the machine itself"),
    "arch": works("told to the plugin; the agent looks at the machine itself"),
    "protocol": replace(works("only `ssh`", "`ssh`"), unless=_protocol),
    "protocol_port": works("where sshd listens; default of a listed machine's `port`", "22"),
    "username": works("who logs in, unless the plugin says so; default of a listed machine's `user`", "root"),
    "password": works("in place of a key; default of a listed machine's `password`"),
    "key_path": works("private key; default of a listed machine's `identity_file`"),
    "use_static_credentials": works("told to the plugin: it makes no keys of its own then", "false"),
    "keepalive": differs("told to the plugin; connections are looked after every 10 seconds, or sooner if it says so"),
    "timeout": differs(
        "how long a machine may take until somebody can log in. A login that is denied counts as such after 10 seconds",
        "10m",
    ),
    "use_external_addr": works("dial the external address where there is one", "false"),
}

AUTOSCALER: Facts = {
    "capacity_per_instance": works("jobs at the same time on a machine; default of a listed machine's `capacity`", "1"),
    "max_use_count": works(
        "jobs that a machine gets in its life; default of a listed one's `use_count`", "0: no limit"
    ),
    "max_instances": differs(
        "machines in any state. A plugin whose own maximum is below it is used up to that", "the plugin's maximum"
    ),
    "plugin": works("who creates machines, by name or path", "needed, unless machines are listed"),
    "plugin_config": works("the plugin's own settings", is_open=True),
    "instance_ready_command": works("run on each new machine; one on which it fails is removed"),
    "instance_acquire_timeout": differs(
        "how long a job waits for a machine when none is on its way for it; otherwise until `prepare_timeout`", "15m"
    ),
    "update_interval": works("between looks at the group at rest", "1m"),
    "update_interval_when_expecting": works("the same while machines come or go", "2s"),
    "deletion_retry_interval": works("after which a machine that is still there is asked to go again", "1m"),
    "shutdown_deletion_interval": works("at the stop, machines that are not gone are deleted again after that", "10s"),
    "shutdown_deletion_retries": works("how often they are deleted then", "3"),
    "failure_threshold": works("health checks in a row that may fail before a machine is replaced", "3"),
    "delete_instances_on_shutdown": works("whether machines go when the manager stops, in `shutdown_timeout`", "false"),
    "reservation_throttling": differs("always so: requests for jobs hold back no machine for longer than two minutes"),
    "log_internal_ip": works("the machine's internal address stands in the job's log", "false"),
    "log_external_ip": works("the same with its external address", "false"),
    "instance_operation_time_buckets": ignored(_BUCKETS),
    "instance_creation_time_buckets": ignored(_BUCKETS),
    "instance_is_running_time_buckets": ignored(_BUCKETS),
    "instance_deletion_time_buckets": ignored(_BUCKETS),
    "instance_readiness_time_buckets": ignored(_BUCKETS),
    "instance_life_duration_buckets": ignored(_BUCKETS),
    "scale_throttle.limit": works("machines a second that may be asked for; -1 is any number", "100"),
    "scale_throttle.burst": works("how many at once", "`max_instances`, or the limit"),
    **{f"connector_config.{key}": fact for key, fact in CONNECTOR.items()},
    "state_storage.enabled": differs("always so: machines and what they were used for are known after a restart"),
    "state_storage.dir": ignored("what is kept is in the manager's data folder"),
    "state_storage.keep_instance_with_acquisitions": differs("always so: jobs on machines are found again"),
    "vm_isolation.enabled": refused_if_set(_NO_VM),
    "vm_isolation.nesting_host": ignored(_NO_VM),
    "vm_isolation.nesting_config": ignored(_NO_VM, is_open=True),
    "vm_isolation.image": ignored(_NO_VM),
    **{f"vm_isolation.connector_config.{key}": ignored(_NO_VM) for key in CONNECTOR},
    "policy.periods": differs(
        "when it holds: minute, hour, day of month, month, day of week. Ranges may go round (`22-6`), steps count from "
        "where their range begins",
        "always",
    ),
    "policy.timezone": works("of the periods", "the manager's"),
    "policy.idle_count": works("jobs that could start at once, besides those that run and wait", "0"),
    "policy.idle_time": differs("after which an idle machine that nobody wants goes; `0s`: at once", "5m"),
    "policy.scale_factor": differs("idle jobs for each that runs, never fewer than `idle_count`", "0"),
    "policy.scale_factor_limit": differs("the most idle jobs that the factor asks for", "0: no limit"),
    "policy.preemptive_mode": works(
        "ask for a job only when a machine is ready for it", "true where `idle_count` is above 0"
    ),
}


def _means(word: str) -> Fact:
    return works(f"{word} of `[runners.autoscaler]`")


MACHINE: Facts = {
    "MaxGrowthRate": works("machines that may be on their way at the same time", "0: any number"),
    "IdleCount": _means("`idle_count` (with `IdleScaleFactor`: `scale_factor_limit`) of a policy"),
    "IdleScaleFactor": _means("`scale_factor` of a policy"),
    "IdleCountMin": _means("`idle_count` of a policy with a `scale_factor`"),
    "IdleTime": _means("in seconds: `idle_time` of a policy"),
    "MaxBuilds": works("`max_use_count` of `[runners.autoscaler]`; default of a listed machine's `use_count`", "0"),
    "MachineName": _means("`machine_name` of `plugin_config`"),
    "MachineDriver": _means("`machine_driver` of `plugin_config`"),
    "MachineOptions": _means("`machine_options` of `plugin_config`"),
    "MachineOptionsWithName": _means("`machine_options_with_name` of `plugin_config`"),
    "MaxRemovalAttempts": ignored("a machine is asked to go, every minute, until it is gone"),
    "OffPeakPeriods": _means("`periods` of a second policy"),
    "OffPeakTimezone": _means("`timezone` of a second policy"),
    "OffPeakIdleCount": _means("`idle_count` of a second policy"),
    "OffPeakIdleTime": _means("`idle_time` of a second policy"),
    "autoscaling.Periods": _means("with fields of seconds and years: `periods` of a policy"),
    "autoscaling.Timezone": _means("`timezone` of a policy"),
    "autoscaling.IdleCount": _means("`idle_count` of a policy"),
    "autoscaling.IdleScaleFactor": _means("`scale_factor` of a policy"),
    "autoscaling.IdleCountMin": _means("`idle_count` of a policy with a `scale_factor`"),
    "autoscaling.IdleTime": _means("`idle_time` of a policy"),
}
