"""Values and state machines of jobs, pipelines and runners. Pure: synchronous, without access to clocks or files."""
