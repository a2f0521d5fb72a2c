"""How events are written from a program: the calls of our SQL functions, on the caller's own connection.

No module here opens a connection, and none imports a driver or a framework before the caller has handed in one of its
connections.
"""
