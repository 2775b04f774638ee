"""Runs plugin programs: processes that print a handshake line and then serve gRPC on a socket. The protocols `fleeting`
and `environments` use it."""
