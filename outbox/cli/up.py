"""The command `up`."""

import typer

commands = typer.Typer()
