"""The agent as a server: start and stop, transport, gRPC services, the list of jobs, watch streams, shells."""
