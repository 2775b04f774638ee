"""Values and pure state machines of the domain. Nothing here awaits, reads a clock or opens a file."""
