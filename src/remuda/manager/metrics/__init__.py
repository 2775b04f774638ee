"""What the manager measures: Prometheus metrics and OpenTelemetry spans."""
