"""Facts about the sections of other executors: ssh, instance, autoscaler, Docker Machine, custom. Pure.

Until machines are created by Remuda itself, the keys that would create or remove them are read and have no effect; each
says what it becomes then.
"""

from dataclasses import replace
from typing import Any

from remuda.manager.keys.fact import Fact, Facts, differs, ignored, refused, refused_if_set, works

_LISTED = "Remuda does not create machines yet; those of `[[runners.remuda.machines]]` are used"
_NO_BUCKETS = "there are no metrics of machines that are created yet"
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
    "os": ignored("the agent looks at the machine itself"),
    "arch": ignored("the agent looks at the machine itself"),
    "protocol": replace(works("only `ssh`", "`ssh`"), unless=_protocol),
    "protocol_port": works("default of a machine's `port`", "22"),
    "username": works("default of a machine's `user`", "root"),
    "password": works("default of a machine's `password`"),
    "key_path": works("default of a machine's `identity_file`"),
    "use_static_credentials": differs("always so: nobody hands out keys for listed machines"),
    "keepalive": ignored("connections are looked after every few seconds"),
    "timeout": ignored("connecting is tried again until `prepare_timeout` or the job's timeout is over"),
    "use_external_addr": ignored("a machine is reached at the `host` of its entry"),
}

AUTOSCALER: Facts = {
    "capacity_per_instance": works("default of a machine's `capacity`", "1"),
    "max_use_count": works("default of a machine's `use_count`", "0"),
    "max_instances": ignored(f"{_LISTED}, all of them"),
    "plugin": ignored(_LISTED),
    "plugin_config": ignored(_LISTED, is_open=True),
    "instance_ready_command": ignored(f"{_LISTED}; `before_job` runs a command before each job"),
    "instance_acquire_timeout": ignored("a job waits for a machine until `prepare_timeout` or its own timeout is over"),
    "update_interval": ignored(_LISTED),
    "update_interval_when_expecting": ignored(_LISTED),
    "deletion_retry_interval": ignored(_LISTED),
    "shutdown_deletion_interval": ignored(_LISTED),
    "shutdown_deletion_retries": ignored(_LISTED),
    "failure_threshold": ignored(_LISTED),
    "delete_instances_on_shutdown": ignored("machines of a list stay"),
    "reservation_throttling": differs("always so: a job is asked for only where there is a free slot"),
    "log_internal_ip": ignored("the log names the machine by its `name`"),
    "log_external_ip": ignored("the log names the machine by its `name`"),
    "instance_operation_time_buckets": ignored(_NO_BUCKETS),
    "instance_readiness_time_buckets": ignored(_NO_BUCKETS),
    "instance_life_duration_buckets": ignored(_NO_BUCKETS),
    "scale_throttle.limit": ignored(_LISTED),
    "scale_throttle.burst": ignored(_LISTED),
    **{f"connector_config.{key}": fact for key, fact in CONNECTOR.items()},
    "state_storage.enabled": differs("always so: the journal knows which job is on which machine"),
    "state_storage.dir": ignored("the journal is in the manager's data folder"),
    "state_storage.keep_instance_with_acquisitions": differs("always so: jobs on machines are found again"),
    "vm_isolation.enabled": refused_if_set(_NO_VM),
    "vm_isolation.nesting_host": ignored(_NO_VM),
    "vm_isolation.nesting_config": ignored(_NO_VM, is_open=True),
    "vm_isolation.image": ignored(_NO_VM),
    **{f"vm_isolation.connector_config.{key}": ignored(_NO_VM) for key in CONNECTOR},
    "policy.periods": ignored(_LISTED),
    "policy.timezone": ignored(_LISTED),
    "policy.idle_count": ignored(f"{_LISTED}, idle or not"),
    "policy.idle_time": ignored(f"{_LISTED}, idle or not"),
    "policy.scale_factor": ignored(_LISTED),
    "policy.scale_factor_limit": ignored(_LISTED),
    "policy.preemptive_mode": ignored(_LISTED),
}


def _becomes(word: str) -> Fact:
    return ignored(f"{_LISTED}. It means {word} of `[runners.autoscaler]`")


MACHINE: Facts = {
    "MaxGrowthRate": _becomes("`scale_throttle.limit`"),
    "IdleCount": _becomes("`idle_count` of a policy (with `IdleScaleFactor`: `scale_factor_limit`)"),
    "IdleScaleFactor": _becomes("`scale_factor` of a policy"),
    "IdleCountMin": _becomes("`idle_count` of a policy with a `scale_factor`"),
    "IdleTime": _becomes("`idle_time` of a policy, in seconds"),
    "MaxBuilds": works("default of a machine's `use_count`; it means `max_use_count` of `[runners.autoscaler]`", "0"),
    "MachineName": _becomes("`machine_name` of `plugin_config`"),
    "MachineDriver": _becomes("`machine_driver` of `plugin_config`"),
    "MachineOptions": _becomes("`machine_options` of `plugin_config`"),
    "MachineOptionsWithName": _becomes("`machine_options_with_name` of `plugin_config`"),
    "MaxRemovalAttempts": _becomes("`max_removal_attempts` of `plugin_config`"),
    "OffPeakPeriods": _becomes("`periods` of a second policy"),
    "OffPeakTimezone": _becomes("`timezone` of a second policy"),
    "OffPeakIdleCount": _becomes("`idle_count` of a second policy"),
    "OffPeakIdleTime": _becomes("`idle_time` of a second policy"),
    "autoscaling.Periods": _becomes("`periods` of a policy, without the fields of seconds and years"),
    "autoscaling.Timezone": _becomes("`timezone` of a policy"),
    "autoscaling.IdleCount": _becomes("`idle_count` of a policy"),
    "autoscaling.IdleScaleFactor": _becomes("`scale_factor` of a policy"),
    "autoscaling.IdleCountMin": _becomes("`idle_count` of a policy with a `scale_factor`"),
    "autoscaling.IdleTime": _becomes("`idle_time` of a policy"),
}
