"""The step `service_stop`: removes the service containers of a job."""
