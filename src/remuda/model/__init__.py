"""Values and pure state machines of the domain: synchronous, without access to clocks or files."""
