"""All metrics of a manager in one table: name, kind, labels, help text; also gitlab-runner's that are not served.

Names, labels and buckets of `gitlab_runner_*` are gitlab-runner's, so that its dashboards and alerts work. `metrics.py`
creates the served ones. A test compares the table with `docs/reference/metrics.md` and a real Prometheus.
"""

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

_NO_INPUTS = "jobs have no inputs yet (`job_inputs` is not among the features)"
_NO_KUBERNETES = "there is no Kubernetes environment"
_NO_ROLES = "no role is assumed: addresses of caches are signed with the configured keys"
_NO_ROUTER = "there is no job router yet; every server is asked directly"


class Family(msgspec.Struct, frozen=True):
    """One metric, served or not."""

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
    _gauge("gitlab_runner_jobs", "Jobs the manager has now.", *RUNNER, "state", "stage", "executor_stage"),
    _counter("gitlab_runner_jobs_total", "Jobs handled.", *RUNNER),
    _counter("gitlab_runner_job_execution_mode_total", "Jobs by how they came.", "mode", "executor"),
    _counter("gitlab_runner_failed_jobs_total", "Jobs failed.", "runner", "runner_name", "failure_reason", "mode"),
    _histogram("gitlab_runner_job_duration_seconds", "How long jobs took.", _DURATIONS, *RUNNER, "mode"),
    _histogram(
        "gitlab_runner_job_queue_duration_seconds",
        "How long jobs waited for a runner.",
        _QUEUED,
        *RUNNER,
        "project_jobs_running",
    ),
    _gauge("gitlab_runner_job_queue_size", "Jobs that wait for the runner, as the server last said.", *RUNNER),
    _gauge("gitlab_runner_job_queue_depth", "How far the server looked for the last job.", *RUNNER),
    _counter(
        "gitlab_runner_acceptable_job_queuing_duration_exceeded_total",
        "Jobs that waited longer than `job_queuing_durations` allow.",
        *RUNNER,
    ),
    _histogram(
        "gitlab_runner_job_stage_duration_seconds",
        f"How long stages of jobs took; of runners with {HIGH_CARDINALITY_FLAG}.",
        _QUEUED,
        *RUNNER,
        "stage",
    ),
    _counter("gitlab_runner_job_inputs_interpolations_total", "", missing=_NO_INPUTS),
    _counter("gitlab_runner_job_inputs_interpolation_failures_total", "", "error_type", missing=_NO_INPUTS),
    _gauge("gitlab_runner_concurrent", "Jobs that may run at the same time."),
    _gauge("gitlab_runner_limit", "Jobs of the runner that may run at the same time; 0 is no limit.", *RUNNER),
    _gauge("gitlab_runner_request_concurrency", "Requests for jobs that are open now.", *OF_REQUESTS),
    _counter(
        "gitlab_runner_request_concurrency_exceeded_total",
        "Times that one more request would have been made but for request_concurrency.",
        *OF_REQUESTS,
    ),
    _gauge("gitlab_runner_request_concurrency_hard_limit", "The configured request_concurrency.", *OF_REQUESTS),
    _gauge(
        "gitlab_runner_request_concurrency_adaptive_limit", "What the answers so far have made of it.", *OF_REQUESTS
    ),
    _gauge("gitlab_runner_request_concurrency_used_limit", "Requests that may be open now.", *OF_REQUESTS),
    _counter(
        "gitlab_runner_api_request_statuses_total",
        "Calls to the server; status -1: no answer.",
        *OF_REQUESTS,
        "endpoint",
        "status",
        "method",
    ),
    _histogram(
        "gitlab_runner_api_request_duration_seconds",
        "How long calls to the server took.",
        _CALLS,
        *OF_REQUESTS,
        "endpoint",
        "status_class",
        "method",
    ),
    _counter("gitlab_runner_api_request_retries_total", "Attempts after the first one of a call.", "path", "method"),
    _counter("gitlab_runner_errors_total", "Lines of the manager's log by level.", "level"),
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
    _gauge("gitlab_runner_process_state_info", "1 for the state that the manager is in.", "state"),
    _counter("gitlab_runner_configuration_loaded_total", "Times that the configuration was read."),
    _counter("gitlab_runner_configuration_loading_error_total", "Times that it could not be used."),
    _counter("gitlab_runner_configuration_saved_total", "Times that the manager itself wrote it."),
    _counter("gitlab_runner_configuration_saving_error_total", "Times that it could not."),
    _counter("gitlab_runner_worker_feeds_total", "Requests for jobs made.", *RUNNER),
    _counter("gitlab_runner_worker_feed_failures_total", "Requests for jobs that had to wait for a slot.", *RUNNER),
    _gauge("gitlab_runner_worker_slots_number", "Slots there are."),
    _counter("gitlab_runner_worker_slot_operations_total", "Slots that came and went.", "operation"),
    _counter(
        "gitlab_runner_worker_processing_failures_total",
        "Jobs that failed, environments without room, answers that were none.",
        "failure_type",
        *RUNNER,
    ),
    _counter("gitlab_runner_worker_health_check_failures_total", "Refusals of the runner by its server.", *RUNNER),
    _counter(
        "gitlab_runner_autoscaling_actions_total",
        "Machines of Docker Machine: created, creation-failed, used, removed.",
        "executor",
        "action",
        *_TARGET,
    ),
    _gauge(
        "gitlab_runner_autoscaling_machine_states",
        "Machines of Docker Machine: acquired, creating, idle, used, removing, stuck-on-removing.",
        "executor",
        "state",
        *_TARGET,
    ),
    _histogram(
        "gitlab_runner_autoscaling_machine_creation_duration_seconds",
        "From the request for one until it ran.",
        _CREATIONS,
        "executor",
    ),
    _histogram(
        "gitlab_runner_autoscaling_machine_stopping_duration_seconds",
        "Stays empty: machines are removed without being stopped first.",
        _REMOVALS,
        "executor",
    ),
    _histogram(
        "gitlab_runner_autoscaling_machine_removal_duration_seconds",
        "From the order to remove one until it was gone.",
        _REMOVALS,
        "executor",
    ),
    _histogram(
        "gitlab_runner_autoscaling_machine_failed_creation_duration_seconds",
        "From the request for one until it had failed.",
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
        "Instances by state: requested (not asked for yet), pending (asked for), creating, running, deleting.",
        *RUNNER,
        "state",
    ),
    _gauge("fleeting_provisioner_max_instances", "Instances that there may be; 0: any number.", *RUNNER),
    _counter("fleeting_provisioner_missed_updates_total", "Times that a group did not show an instance.", *RUNNER),
    _counter(
        "fleeting_provisioner_instance_operations_total",
        "Instances that groups accepted to create or delete.",
        *RUNNER,
        "operation",
    ),
    _counter(
        "fleeting_provisioner_internal_operations_total",
        "Calls of plugins: reconcile, provision, removal.",
        *RUNNER,
        "operation",
    ),
    _histogram(
        "fleeting_provisioner_instance_creation_time_seconds",
        "From the request for an instance until its group showed it.",
        _INSTANCES,
        *RUNNER,
    ),
    _histogram("fleeting_provisioner_instance_is_running_time_seconds", "The same until it ran.", _INSTANCES, *RUNNER),
    _histogram(
        "fleeting_provisioner_instance_deletion_time_seconds",
        "From the order to delete an instance until it was gone.",
        _INSTANCES,
        *RUNNER,
    ),
    _histogram("fleeting_provisioner_instance_life_duration_seconds", "How long instances lived.", _LIVES, *RUNNER),
    _gauge(
        "fleeting_taskscaler_tasks",
        "Slots by state: idle, pending (jobs that wait), acquired, reserved (open requests), unavailable, unhealthy.",
        *RUNNER,
        "state",
    ),
    _gauge("fleeting_taskscaler_max_tasks_per_instance", "Jobs at the same time on an instance.", *RUNNER),
    _gauge("fleeting_taskscaler_max_use_count_per_instance", "Jobs in an instance's life; 0: any number.", *RUNNER),
    _gauge("fleeting_taskscaler_desired_instances", "The change that the last plan makes; below 0: removals.", *RUNNER),
    _counter("fleeting_taskscaler_scale_operations_total", "Plans that went up or down.", *RUNNER, "operation"),
    _counter(
        "fleeting_taskscaler_task_operations_total",
        "Slots: acquire, acquire_timeout, release; of requests for jobs: reserve, unreserve, "
        "reserve_iop_capacity_failure (no machine may be added), reserve_available_capacity_failure (one may).",
        *RUNNER,
        "operation",
    ),
    _histogram(
        "fleeting_taskscaler_task_instance_readiness_time_seconds",
        "From an instance that runs to one that takes jobs.",
        _INSTANCES,
        *RUNNER,
    ),
    _counter(
        "remuda_manager_scaling_decisions_total",
        "What plans said, by action (create, remove, drain, forget, hindered) and reason.",
        *RUNNER,
        "action",
        "reason",
    ),
    _gauge(
        "remuda_manager_scaling_hindered_instances",
        "Instances that are wanted and not created now: max_instances, quota, throttled, max_creating, backing_off, "
        "probing, not_current.",
        *RUNNER,
        "group",
        "reason",
    ),
    _gauge("remuda_manager_scaling_group_well", "1 while the group's plugin answers.", *RUNNER, "group"),
    _counter(
        "remuda_manager_scaling_machine_seconds_total",
        "Seconds of machines that there were, by use: creating, idle, busy, unavailable, removing.",
        *RUNNER,
        "group",
        "use",
    ),
    _histogram(
        "remuda_manager_scaling_boot_seconds",
        "From the request for a machine until it took jobs.",
        _BOOTS,
        *RUNNER,
        "group",
    ),
    _histogram(
        "remuda_manager_scaling_slot_wait_seconds",
        "How long accepted jobs waited for their slot on a machine.",
        _WAITS,
        *RUNNER,
    ),
    _counter(
        "remuda_manager_scaling_failed_creations_total",
        "Machines that were asked for and never took jobs: refused, undelivered, unprepared, stuck, lost.",
        *RUNNER,
        "group",
        "cause",
    ),
    _counter(
        "remuda_manager_scaling_lost_machines_total",
        "Machines that vanished, by whose doing it may be: none (not known), replaced, overprovisioned, taken_away.",
        *RUNNER,
        "group",
        "cause",
    ),
    _counter(
        "remuda_manager_scaling_plugin_starts_total",
        "Starts of the group's plugin; the first counts.",
        *RUNNER,
        "group",
    ),
    _gauge(
        "remuda_manager_scaling_orphans",
        "Machines without an owner that the last sweep found, and left; absent until there was one.",
        *RUNNER,
    ),
    _gauge("remuda_manager_slots", "Slots by what they are: running, asking, free.", "state"),
    _gauge("remuda_manager_saturation", "Part of the slots that jobs have, 0 to 1."),
    _gauge("remuda_manager_runner_well", "1 while the server answers as it should.", *RUNNER),
    _gauge("remuda_manager_runner_blocked", "1 while no job is asked for: there is too little disk.", *RUNNER),
    _gauge("remuda_manager_disk_free_bytes", "Free where the runner's jobs run.", *RUNNER),
    _gauge("remuda_manager_disk_least_bytes", "With less than this no job is asked for.", *RUNNER),
    _counter(
        "remuda_manager_job_cpu_seconds_total", "Processor time of jobs that ended: user, system.", *RUNNER, "mode"
    ),
    _counter(
        "remuda_manager_job_disk_bytes_total", "What they had to do with disks: read, written.", *RUNNER, "direction"
    ),
    _counter("remuda_manager_job_network_bytes_total", "The same with networks: received, sent.", *RUNNER, "direction"),
    _histogram("remuda_manager_job_memory_peak_bytes", "Most memory of a job at a time.", _SIZES, *RUNNER),
    _histogram("remuda_manager_job_work_dir_bytes", "What its working directory took at the end.", _SIZES, *RUNNER),
    _counter("remuda_manager_journals_damaged_total", "Journals that were damaged, and moved aside at the start."),
    _counter("remuda_manager_spans_total", "Spans of jobs and steps: sent, dropped here, refused there.", "outcome"),
)

SERVED = {family.name: family for family in FAMILIES if not family.missing}
MISSING = {family.name: family for family in FAMILIES if family.missing}
