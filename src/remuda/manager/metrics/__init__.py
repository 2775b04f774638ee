"""The manager's Prometheus metrics and OpenTelemetry spans."""
