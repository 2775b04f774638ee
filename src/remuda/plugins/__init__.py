"""Runs plugin programs: processes that print a handshake line and then serve gRPC on a socket. The packages `fleeting`
and `environments` use this for their protocols."""
