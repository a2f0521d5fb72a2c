"""The composition root: the only room that builds pools, clients and services and joins them.

`daemon` joins what `outbox run` needs; `desk` joins what people need (cli, REST, console, library). They are apart so
that a command does not wait for the imports of the other.
"""
