"""The only API for people: commands, REST, console and library are skins on these services. They see ports, not stores.

Built by `outbox.app.operations` and `outbox.app.desk`. Whatever writes takes an `Actor`; bad input is a
`BadRequest` that names its field (`policy.inputs`).
"""
