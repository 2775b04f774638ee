"""Host for plugin programs: processes that print a handshake line and then serve gRPC on a socket.

`fleeting` and `environments` are the two protocols on it. `job_hooks` is shared by the manager and environment plugins.
"""
