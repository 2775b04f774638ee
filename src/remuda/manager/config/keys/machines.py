"""Says how Remuda treats each key of the ssh, instance, autoscaler, Docker Machine and custom executor sections."""

from dataclasses import replace
from typing import Any

from remuda.manager.config.keys.fact import Fact, Facts, differs, ignored, refused, refused_if_set, works

_BUCKETS = "all runners have the default buckets of gitlab-runner"
_NO_VM = "there are no nested virtual machines; jobs would run on the machine itself"

SSH: Facts = {
    "host": works("address of the machine that jobs run on", "required"),
    "port": works("SSH port of the machine", "22"),
    "user": works("user for the SSH login", "root"),
    "password": works("password; this or `identity_file` is required"),
    "identity_file": works("file with the private key"),
    "disable_strict_host_key_checking": differs(
        "do not check the host key of the machine", "false", there="the default is true"
    ),
    "known_hosts_file": works("file with the host key of the machine", "`~/.ssh/known_hosts`"),
}

INSTANCE: Facts = {
    "allowed_images": ignored("there are no nested virtual machines whose image a job could choose"),
    "use_common_build_dir": differs(
        "always on: working directories are named after the project and the slot",
        there="off unless set, and only possible with `max_use_count = 1` or nested virtual machines",
    ),
}

CUSTOM: Facts = {
    "config_exec": works("program that configures a job; its output is JSON"),
    "config_args": works("arguments of `config_exec`"),
    "config_exec_timeout": works("time limit of `config_exec` in seconds", "3600"),
    "prepare_exec": works("program that prepares the environment"),
    "prepare_args": works("arguments of `prepare_exec`"),
    "prepare_exec_timeout": works("time limit of `prepare_exec` in seconds", "3600"),
    "run_exec": works("program that runs a script of the job", "required"),
    "run_args": works("first arguments of `run_exec`; the path of the script and the name of the stage follow"),
    "cleanup_exec": works("program that cleans up"),
    "cleanup_args": works("arguments of `cleanup_exec`"),
    "cleanup_exec_timeout": works("time limit of `cleanup_exec` in seconds", "3600"),
    "graceful_kill_timeout": works("seconds between SIGTERM and SIGKILL", "600"),
    "force_kill_timeout": works("seconds to wait for a program after SIGKILL", "600"),
}


def _protocol(value: Any) -> Fact | None:
    return None if value in ("", "ssh") else refused(f"{value!r} is not supported; machines are reached by ssh")


CONNECTOR: Facts = {
    "os": works("passed to the plugin; the agent itself detects it on the machine"),
    "arch": works("passed to the plugin; the agent itself detects it on the machine"),
    "protocol": replace(works("only `ssh`", "`ssh`"), unless=_protocol),
    "protocol_port": works("SSH port; default for `port` of a listed machine", "22"),
    "username": works(
        "user for the SSH login, unless the plugin sets one; default for `user` of a listed machine", "root"
    ),
    "password": works("password instead of a key; default for `password` of a listed machine"),
    "key_path": works("file with the private key; default for `identity_file` of a listed machine"),
    "use_static_credentials": works("passed to the plugin, which then creates no keys", "false"),
    "keepalive": differs(
        "passed to the plugin; connections are checked every 10 seconds, or more often if the key says so",
        there="connections are checked at exactly this interval",
    ),
    "timeout": differs(
        "how long it may take until a login to a machine works. A denied login is final after 10 seconds",
        "10m",
        there="a denied login is tried again for the whole time",
    ),
    "use_external_addr": works("connect to the external address, if there is one", "false"),
}

AUTOSCALER: Facts = {
    "capacity_per_instance": works(
        "jobs that a machine may run at the same time; default for `capacity` of a listed machine", "1"
    ),
    "max_use_count": works(
        "number of jobs that a machine may run in its lifetime; default for `use_count` of a listed machine",
        "0, no limit",
    ),
    "max_instances": differs(
        "number of machines, in any state. A lower maximum of the plugin has precedence",
        "maximum of the plugin",
        there="with a lower maximum of the plugin the runner does not start",
    ),
    "plugin": works("name or path of the plugin that creates machines; required, unless machines are listed"),
    "plugin_config": works("settings of the plugin", is_open=True),
    "instance_ready_command": works("command that runs on each new machine; if it fails, the machine is removed"),
    "instance_acquire_timeout": differs(
        "how long a job waits if no machine is being created for it; otherwise it waits until `prepare_timeout`",
        "15m",
        there="the limit of each of three tries, also while a machine is being created",
    ),
    "update_interval": works("time between two checks of the group while nothing changes", "1m"),
    "update_interval_when_expecting": works(
        "time between two checks of the group while machines are created or removed", "2s"
    ),
    "deletion_retry_interval": works(
        "time after which a deletion is requested again if the machine still exists", "1m"
    ),
    "shutdown_deletion_interval": works(
        "when the manager stops: time after which the deletion of machines is requested again", "10s"
    ),
    "shutdown_deletion_retries": works("when the manager stops: how often the deletion of machines is requested", "3"),
    "failure_threshold": works("failed health checks in a row before a machine is replaced", "3"),
    "delete_instances_on_shutdown": works("remove machines when the manager stops, within `shutdown_timeout`", "false"),
    "reservation_throttling": differs(
        "always on: job requests reserve no machine for longer than two minutes", there="false switches it off"
    ),
    "log_internal_ip": works("write the internal address of the machine to the job's log", "false"),
    "log_external_ip": works("write the external address of the machine to the job's log", "false"),
    "instance_operation_time_buckets": ignored(_BUCKETS),
    "instance_creation_time_buckets": ignored(_BUCKETS),
    "instance_is_running_time_buckets": ignored(_BUCKETS),
    "instance_deletion_time_buckets": ignored(_BUCKETS),
    "instance_readiness_time_buckets": ignored(_BUCKETS),
    "instance_life_duration_buckets": ignored(_BUCKETS),
    "scale_throttle.limit": works("machines that may be requested per second; -1 means no limit", "100"),
    "scale_throttle.burst": works("machines that may be requested at once", "`max_instances`, or the limit"),
    **{f"connector_config.{key}": fact for key, fact in CONNECTOR.items()},
    "state_storage.enabled": differs(
        "always on: the manager knows machines and their use after a restart",
        there="off by default; machines of an earlier process are then removed at the start",
    ),
    "state_storage.dir": ignored("the state is in the data folder of the manager"),
    "state_storage.keep_instance_with_acquisitions": differs(
        "always on: the manager finds jobs on machines again",
        there="off by default; machines that had jobs are then removed at the start",
    ),
    "vm_isolation.enabled": refused_if_set(_NO_VM),
    "vm_isolation.nesting_host": ignored(_NO_VM),
    "vm_isolation.nesting_config": ignored(_NO_VM, is_open=True),
    "vm_isolation.image": ignored(_NO_VM),
    **{f"vm_isolation.connector_config.{key}": ignored(_NO_VM) for key in CONNECTOR},
    "policy.periods": differs(
        "when the policy applies: minute, hour, day of month, month, day of week. Ranges may wrap (`22-6`); steps "
        "count from the start of their range",
        "always",
        there="ranges do not wrap",
    ),
    "policy.timezone": works("time zone of `periods`", "that of the manager"),
    "policy.idle_count": works("number of free slots for new jobs, in addition to jobs that run or wait", "0"),
    "policy.idle_time": differs(
        "how long an idle machine that is not needed is kept; `0s`: not at all",
        "5m",
        there="a policy without it removes idle machines at once",
    ),
    "policy.scale_factor": differs(
        "free slots per running job, at least `idle_count`",
        "0",
        there="it multiplies the whole capacity, so a factor of 1 or less has no effect",
    ),
    "policy.scale_factor_limit": differs(
        "upper limit for the free slots from `scale_factor`",
        "0, no limit",
        there="it limits the whole capacity",
    ),
    "policy.preemptive_mode": works(
        "request a job only when a machine is ready for it", "true if `idle_count` is above 0"
    ),
}


def _means(word: str) -> Fact:
    return works(f"same as {word} of `[runners.autoscaler]`")


MACHINE: Facts = {
    "MaxGrowthRate": works("machines that may be created at the same time", "0, no limit"),
    "IdleCount": _means("`idle_count` (with `IdleScaleFactor`: `scale_factor_limit`) of a policy"),
    "IdleScaleFactor": _means("`scale_factor` of a policy"),
    "IdleCountMin": _means("`idle_count` of a policy with a `scale_factor`"),
    "IdleTime": _means("`idle_time`, here in seconds, of a policy"),
    "MaxBuilds": works(
        "same as `max_use_count` of `[runners.autoscaler]`; default for `use_count` of a listed machine", "0"
    ),
    "MachineName": _means("`machine_name` of `plugin_config`"),
    "MachineDriver": _means("`machine_driver` of `plugin_config`"),
    "MachineOptions": _means("`machine_options` of `plugin_config`"),
    "MachineOptionsWithName": _means("`machine_options_with_name` of `plugin_config`"),
    "MaxRemovalAttempts": ignored("the removal of a machine is requested every minute until it is gone"),
    "OffPeakPeriods": _means("`periods` of a second policy"),
    "OffPeakTimezone": _means("`timezone` of a second policy"),
    "OffPeakIdleCount": _means("`idle_count` of a second policy"),
    "OffPeakIdleTime": _means("`idle_time` of a second policy"),
    "autoscaling.Periods": _means("`periods`, here with fields for seconds and years, of a policy"),
    "autoscaling.Timezone": _means("`timezone` of a policy"),
    "autoscaling.IdleCount": _means("`idle_count` of a policy"),
    "autoscaling.IdleScaleFactor": _means("`scale_factor` of a policy"),
    "autoscaling.IdleCountMin": _means("`idle_count` of a policy with a `scale_factor`"),
    "autoscaling.IdleTime": _means("`idle_time` of a policy"),
}
