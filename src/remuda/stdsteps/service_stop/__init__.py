"""The step `service_stop`."""
