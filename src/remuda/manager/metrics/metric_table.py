"""Table of all metrics of a manager (name, kind, labels, help text), and of gitlab-runner's metrics that it does not
have.

Names, labels and buckets of `gitlab_runner_*` are gitlab-runner's, so that its dashboards and alerts work."""

import msgspec

RUNNER = ("runner", "runner_name", "system_id")
"""Labels of a runner: short token, configured name, and the manager's system id."""
OF_REQUESTS = ("runner", "system_id")
_DURATIONS = (30, 60, 300, 600, 1800, 3600, 7200, 10800, 18000, 36000)
_QUEUED = (1, 3, 10, 30, 60, 120, 300, 900, 1800, 3600)
_CALLS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = tuple(float(1 << exponent) for exponent in range(24, 37, 2))
_INSTANCES = (1, 5, 10, 15, 30, 45, 60, 90, 120, 180)
_CREATIONS = tuple(30 * 1.25**exponent for exponent in range(10))
_REMOVALS = (1, 3, 5, 10, 30, 50, 60, 80, 90, 120)
_BOOTS = (*_INSTANCES, 300, 600, 900)
_WAITS = (0.1, 1, 5, 15, 30, 60, 120, 300, 600, 900, 1800)
_TARGET = ("target_zone", "target_region", "target_project", "target_machine_type")
"""Where machines of Docker Machine are created."""
_LIVES = (60, 300, 600, 900, 1800, 3600, 21600, 43200, 86400)
HIGH_CARDINALITY_FLAG = "FF_EXPORT_HIGH_CARDINALITY_METRICS"

_NO_INPUTS = "jobs have no inputs yet (the manager does not announce the feature `job_inputs`)"
_NO_KUBERNETES = "there is no Kubernetes environment"
_NO_ROLES = "the manager assumes no role, it signs cache URLs with the configured keys"
_NO_ROUTER = "there is no job router yet, the manager sends job requests to each server directly"


class Family(msgspec.Struct, frozen=True):
    """One metric of the table. `missing` says why the manager does not serve it; empty if it does."""

    name: str
    kind: str
    """gauge, counter or histogram."""
    labels: tuple[str, ...]
    text: str
    buckets: tuple[float, ...] = ()
    missing: str = ""
    """Why it is not served; empty: it is."""


def _gauge(name: str, text: str, *labels: str, missing: str = "") -> Family:
    return Family(name, "gauge", labels, text, missing=missing)


def _counter(name: str, text: str, *labels: str, missing: str = "") -> Family:
    return Family(name, "counter", labels, text, missing=missing)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str, missing: str = "") -> Family:
    return Family(name, "histogram", labels, text, buckets, missing)


def _missing(kind: str, reason: str, *names: str) -> list[Family]:
    return [Family(name, kind, (), "", missing=reason) for name in names]


FAMILIES = (
    _gauge("gitlab_runner_jobs", "Jobs that the manager has now.", *RUNNER, "state", "stage", "executor_stage"),
    _counter("gitlab_runner_jobs_total", "Jobs received.", *RUNNER),
    _counter(
        "gitlab_runner_job_execution_mode_total",
        "Jobs by how they were defined: traditional (script) or steps (run).",
        "mode",
        "executor",
    ),
    _counter("gitlab_runner_failed_jobs_total", "Failed jobs.", "runner", "runner_name", "failure_reason", "mode"),
    _histogram("gitlab_runner_job_duration_seconds", "Duration of jobs.", _DURATIONS, *RUNNER, "mode"),
    _histogram(
        "gitlab_runner_job_queue_duration_seconds",
        "Time that jobs waited for a runner, as reported by the server.",
        _QUEUED,
        *RUNNER,
        "project_jobs_running",
    ),
    _gauge("gitlab_runner_job_queue_size", "Jobs that wait for the runner, as last reported by the server.", *RUNNER),
    _gauge("gitlab_runner_job_queue_depth", "Queue positions that the server searched to find the last job.", *RUNNER),
    _counter(
        "gitlab_runner_acceptable_job_queuing_duration_exceeded_total",
        "Jobs that waited longer than `job_queuing_durations` allows.",
        *RUNNER,
    ),
    _histogram(
        "gitlab_runner_job_stage_duration_seconds",
        f"Duration of the stages of jobs, only for runners with {HIGH_CARDINALITY_FLAG}.",
        _QUEUED,
        *RUNNER,
        "stage",
    ),
    _counter("gitlab_runner_job_inputs_interpolations_total", "", missing=_NO_INPUTS),
    _counter("gitlab_runner_job_inputs_interpolation_failures_total", "", "error_type", missing=_NO_INPUTS),
    _gauge("gitlab_runner_concurrent", "Jobs that may run at the same time."),
    _gauge("gitlab_runner_limit", "Jobs of the runner that may run at the same time; 0 means no limit.", *RUNNER),
    _gauge("gitlab_runner_request_concurrency", "Job requests that are open now.", *OF_REQUESTS),
    _counter(
        "gitlab_runner_request_concurrency_exceeded_total",
        "Job requests that were not made because of request_concurrency.",
        *OF_REQUESTS,
    ),
    _gauge("gitlab_runner_request_concurrency_hard_limit", "The configured request_concurrency.", *OF_REQUESTS),
    _gauge(
        "gitlab_runner_request_concurrency_adaptive_limit",
        "The limit of open job requests that was computed from the answers so far.",
        *OF_REQUESTS,
    ),
    _gauge("gitlab_runner_request_concurrency_used_limit", "Job requests that may be open now.", *OF_REQUESTS),
    _counter(
        "gitlab_runner_api_request_statuses_total",
        "Calls to the server. Status -1 means no answer.",
        *OF_REQUESTS,
        "endpoint",
        "status",
        "method",
    ),
    _histogram(
        "gitlab_runner_api_request_duration_seconds",
        "Duration of calls to the server.",
        _CALLS,
        *OF_REQUESTS,
        "endpoint",
        "status_class",
        "method",
    ),
    _counter(
        "gitlab_runner_api_request_retries_total",
        "Retries of calls to the server, without job requests.",
        "path",
        "method",
    ),
    _counter("gitlab_runner_errors_total", "Log lines of the manager, by level.", "level"),
    _gauge(
        "gitlab_runner_version_info",
        "The manager's version.",
        "name",
        "version",
        "revision",
        "branch",
        "go_version",
        "built_at",
        "os",
        "architecture",
    ),
    _gauge("gitlab_runner_process_state_info", "1 for the current state of the manager, 0 for the others.", "state"),
    _counter("gitlab_runner_configuration_loaded_total", "Times that the configuration was loaded."),
    _counter("gitlab_runner_configuration_loading_error_total", "Times that the configuration could not be loaded."),
    _counter("gitlab_runner_configuration_saved_total", "Times that the manager wrote the configuration file."),
    _counter(
        "gitlab_runner_configuration_saving_error_total",
        "Times that the manager could not write the configuration file.",
    ),
    _counter("gitlab_runner_worker_feeds_total", "Job requests sent to the server.", *RUNNER),
    _counter("gitlab_runner_worker_feed_failures_total", "Job requests that had to wait for a slot.", *RUNNER),
    _gauge("gitlab_runner_worker_slots_number", "Slots of the manager, from `concurrent`."),
    _counter(
        "gitlab_runner_worker_slot_operations_total",
        "Slots that a change of `concurrent` started or stopped.",
        "operation",
    ),
    _counter(
        "gitlab_runner_worker_processing_failures_total",
        "Failed jobs, job requests without a free environment, and failed job requests.",
        "failure_type",
        *RUNNER,
    ),
    _counter(
        "gitlab_runner_worker_health_check_failures_total",
        "Job requests that the server refused because of the runner's token.",
        *RUNNER,
    ),
    _counter(
        "gitlab_runner_autoscaling_actions_total",
        "Docker Machine: machines by action (created, creation-failed, used, removed).",
        "executor",
        "action",
        *_TARGET,
    ),
    _gauge(
        "gitlab_runner_autoscaling_machine_states",
        "Docker Machine: machines by state (acquired, creating, idle, used, removing, stuck-on-removing).",
        "executor",
        "state",
        *_TARGET,
    ),
    _histogram(
        "gitlab_runner_autoscaling_machine_creation_duration_seconds",
        "Docker Machine: time from the request for a machine until it runs.",
        _CREATIONS,
        "executor",
    ),
    _histogram(
        "gitlab_runner_autoscaling_machine_stopping_duration_seconds",
        "Always empty, because machines are removed without stopping them first.",
        _REMOVALS,
        "executor",
    ),
    _histogram(
        "gitlab_runner_autoscaling_machine_removal_duration_seconds",
        "Docker Machine: time from the request to remove a machine until it is gone.",
        _REMOVALS,
        "executor",
    ),
    _histogram(
        "gitlab_runner_autoscaling_machine_failed_creation_duration_seconds",
        "Docker Machine: time from the request for a machine until its creation failed.",
        _REMOVALS,
        "executor",
    ),
    *_missing(
        "gauge",
        _NO_KUBERNETES,
        "gitlab_runner_kubernetes_autoscaler_pause_pods_desired",
        "gitlab_runner_kubernetes_autoscaler_pause_pods_current",
    ),
    *_missing(
        "counter",
        _NO_KUBERNETES,
        "gitlab_runner_kubernetes_autoscaler_reconcile_errors_total",
        "gitlab_runner_kubernetes_autoscaler_scale_operations_total",
    ),
    *_missing(
        "gauge",
        _NO_ROLES,
        "gitlab_runner_cache_s3_assume_role_requests_in_flight",
        "gitlab_runner_cache_s3_assume_role_cached_credentials",
    ),
    *_missing(
        "histogram",
        _NO_ROLES,
        "gitlab_runner_cache_s3_assume_role_wait_seconds",
        "gitlab_runner_cache_s3_assume_role_duration_seconds",
    ),
    *_missing(
        "counter",
        _NO_ROLES,
        "gitlab_runner_cache_s3_assume_role_cache_hits_total",
        "gitlab_runner_cache_s3_assume_role_cache_misses_total",
        "gitlab_runner_cache_s3_assume_role_failures_total",
    ),
    *_missing("gauge", _NO_ROUTER, "gitlab_runner_job_router_circuit_breaker_state"),
    *_missing(
        "counter",
        _NO_ROUTER,
        "gitlab_runner_job_router_circuit_breaker_trips_total",
        "gitlab_runner_job_router_discovery_cache_events_total",
        "gitlab_runner_job_router_fallbacks_total",
    ),
    *_missing("histogram", _NO_ROUTER, "gitlab_runner_job_router_get_job_duration_seconds"),
    _gauge(
        "fleeting_provisioner_instances",
        "Instances by state: requested (not sent to the plugin yet), pending (sent), creating, running, deleting.",
        *RUNNER,
        "state",
    ),
    _gauge("fleeting_provisioner_max_instances", "Largest number of instances; 0 means no limit.", *RUNNER),
    _counter(
        "fleeting_provisioner_missed_updates_total", "Times that the plugin did not list an existing instance.", *RUNNER
    ),
    _counter(
        "fleeting_provisioner_instance_operations_total",
        "Instances that plugins accepted to create or delete.",
        *RUNNER,
        "operation",
    ),
    _counter(
        "fleeting_provisioner_internal_operations_total",
        "Calls to plugins: reconcile, provision, removal.",
        *RUNNER,
        "operation",
    ),
    _histogram(
        "fleeting_provisioner_instance_creation_time_seconds",
        "Time from the request for an instance until the plugin lists it.",
        _INSTANCES,
        *RUNNER,
    ),
    _histogram(
        "fleeting_provisioner_instance_is_running_time_seconds",
        "Time from the request for an instance until it runs.",
        _INSTANCES,
        *RUNNER,
    ),
    _histogram(
        "fleeting_provisioner_instance_deletion_time_seconds",
        "Time from the request to delete an instance until it is gone.",
        _INSTANCES,
        *RUNNER,
    ),
    _histogram("fleeting_provisioner_instance_life_duration_seconds", "Lifetime of instances.", _LIVES, *RUNNER),
    _gauge(
        "fleeting_taskscaler_tasks",
        "Slots by state: idle, pending (jobs that wait), acquired, reserved (job requests), unavailable, unhealthy.",
        *RUNNER,
        "state",
    ),
    _gauge("fleeting_taskscaler_max_tasks_per_instance", "Jobs that an instance may run at the same time.", *RUNNER),
    _gauge(
        "fleeting_taskscaler_max_use_count_per_instance",
        "Jobs that an instance may run in its lifetime; 0 means no limit.",
        *RUNNER,
    ),
    _gauge(
        "fleeting_taskscaler_desired_instances",
        "Instances that the last plan adds; negative if it removes some.",
        *RUNNER,
    ),
    _counter(
        "fleeting_taskscaler_scale_operations_total",
        "Plans that added (up) or removed (down) instances.",
        *RUNNER,
        "operation",
    ),
    _counter(
        "fleeting_taskscaler_task_operations_total",
        "Slot operations: acquire, acquire_timeout, release. For job requests: reserve, unreserve, "
        "reserve_iop_capacity_failure (no instance may be added), reserve_available_capacity_failure (one may).",
        *RUNNER,
        "operation",
    ),
    _histogram(
        "fleeting_taskscaler_task_instance_readiness_time_seconds",
        "Time from when an instance runs until it is ready for jobs.",
        _INSTANCES,
        *RUNNER,
    ),
    _counter(
        "remuda_manager_scaling_decisions_total",
        "Decisions of plans by action (create, remove, drain, forget, hindered) and reason.",
        *RUNNER,
        "action",
        "reason",
    ),
    _gauge(
        "remuda_manager_scaling_hindered_instances",
        "Instances that are needed but not created now, by reason: max_instances, quota, throttled, max_creating, "
        "backing_off, probing, not_current.",
        *RUNNER,
        "group",
        "reason",
    ),
    _gauge(
        "remuda_manager_scaling_group_well", "1 while the plugin of the group answers, otherwise 0.", *RUNNER, "group"
    ),
    _counter(
        "remuda_manager_scaling_machine_seconds_total",
        "Machine seconds by use: creating, idle, busy, unavailable, removing.",
        *RUNNER,
        "group",
        "use",
    ),
    _histogram(
        "remuda_manager_scaling_boot_seconds",
        "Time from the request for a machine until it is ready for jobs.",
        _BOOTS,
        *RUNNER,
        "group",
    ),
    _histogram(
        "remuda_manager_scaling_slot_wait_seconds",
        "Time that accepted jobs waited for a slot on a machine.",
        _WAITS,
        *RUNNER,
    ),
    _counter(
        "remuda_manager_scaling_failed_creations_total",
        "Requested machines that never became ready, by cause: refused, undelivered, unprepared, stuck, lost.",
        *RUNNER,
        "group",
        "cause",
    ),
    _counter(
        "remuda_manager_scaling_lost_machines_total",
        "Machines that vanished, by likely cause: none (unknown), replaced, overprovisioned, taken_away.",
        *RUNNER,
        "group",
        "cause",
    ),
    _counter(
        "remuda_manager_scaling_plugin_starts_total",
        "Starts of the plugin of the group, including the first.",
        *RUNNER,
        "group",
    ),
    _gauge(
        "remuda_manager_scaling_orphans",
        "Machines without an owner that the last sweep found and did not remove. Absent until the first sweep.",
        *RUNNER,
    ),
    _gauge("remuda_manager_slots", "Slots by use: running (a job), asking (an open job request), free.", "state"),
    _gauge("remuda_manager_saturation", "Share of the slots that run jobs, 0 to 1."),
    _gauge(
        "remuda_manager_runner_well",
        "1 while the server answers job requests and calls of jobs without an error, otherwise 0.",
        *RUNNER,
    ),
    _gauge(
        "remuda_manager_runner_blocked",
        "1 while no jobs are requested because they could not run: too little or unknown free disk space, no container "
        "engine, or a program, folder or user that cannot be used. Otherwise 0.",
        *RUNNER,
    ),
    _gauge("remuda_manager_disk_free_bytes", "Free disk space where the jobs of the runner run.", *RUNNER),
    _gauge("remuda_manager_disk_least_bytes", "No jobs are requested if less disk space than this is free.", *RUNNER),
    _counter("remuda_manager_job_cpu_seconds_total", "CPU time of finished jobs: user, system.", *RUNNER, "mode"),
    _counter(
        "remuda_manager_job_disk_bytes_total", "Disk traffic of finished jobs: read, written.", *RUNNER, "direction"
    ),
    _counter(
        "remuda_manager_job_network_bytes_total",
        "Network traffic of finished jobs: received, sent.",
        *RUNNER,
        "direction",
    ),
    _histogram("remuda_manager_job_memory_peak_bytes", "Peak memory of finished jobs.", _SIZES, *RUNNER),
    _histogram(
        "remuda_manager_job_work_dir_bytes", "Size of the working directory at the end of a job.", _SIZES, *RUNNER
    ),
    _counter(
        "remuda_manager_journals_damaged_total", "Damaged journals that were moved aside at the start of the manager."
    ),
    _counter(
        "remuda_manager_spans_total",
        "Spans of jobs and steps: sent, dropped by the manager, refused by the collector.",
        "outcome",
    ),
)

SERVED = {family.name: family for family in FAMILIES if not family.missing}
MISSING = {family.name: family for family in FAMILIES if family.missing}
