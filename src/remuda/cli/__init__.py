"""The command line, and the only place where the services are put together. One file a command group.

Command modules are imported when their command is called, and import what is heavy when they run: `remuda version`
and `remuda --help` load neither an HTTP library nor a service.
"""
