"""The command line: one module per command group, with its options, help and output. Other packages do the actual work.

The module of a command is imported when the command is called, and imports services when it runs, so that `remuda
version` and `remuda --help` load neither an HTTP library nor a service.
"""
