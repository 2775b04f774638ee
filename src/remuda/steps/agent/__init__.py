"""The agent as a server: its data folder, transport, gRPC service, jobs, watch streams, shells."""
