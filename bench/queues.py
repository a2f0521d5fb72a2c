"""PgQueuer and Procrastinate in an environment of their own under build/: what a queue library without a sink costs the
database. Not dependencies of ours."""

from dataclasses import dataclass

from bench.tools import must, programs

PACKAGES = ("pgqueuer==1.6.0", "procrastinate==3.10.0", "psycopg[binary]==3.3.9")
# Each program: `install`, `insert N` in transactions of one job, or `work`, which ends when no job is left.
_PGQUEUER = """
import asyncio, sys
import psycopg
from pgqueuer import PgQueuer
from pgqueuer.db import PsycopgDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

async def main(url, payload, what, n="0"):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        driver = PsycopgDriver(connection)
        if what == "install":
            await Queries(driver).install()
        elif what == "insert":
            for _ in range(int(n)):
                await Queries(driver).enqueue("index", payload.encode())
        else:
            queue = PgQueuer(driver)

            @queue.entrypoint("index")
            async def index(job):
                pass

            await queue.run(mode=QueueExecutionMode.drain, batch_size=500)

asyncio.run(main(*sys.argv[1:]))
"""
_PROCRASTINATE = """
import sys
import procrastinate

url, payload, what, n = [*sys.argv[1:], "0"][:4]
asynchronous = what == "work"
connector = (procrastinate.PsycopgConnector if asynchronous else procrastinate.SyncPsycopgConnector)(conninfo=url)
app = procrastinate.App(connector=connector)

@app.task(name="index")
async def index(document):
    pass

if what == "work":
    app.run_worker(wait=False, concurrency=10, install_signal_handlers=False)
else:
    with app.open():
        if what == "install":
            app.schema_manager.apply_schema()
        for _ in range(int(n)):
            index.defer(document=payload)
"""
PROGRAMS = {"PgQueuer": _PGQUEUER, "Procrastinate": _PROCRASTINATE}


@dataclass(frozen=True, slots=True)
class QueueLibrary:
    name: str
    url: str
    payload: str

    def do(self, *what: str) -> None:
        command = [
            str(programs("queues", *PACKAGES) / "python"),
            "-c",
            PROGRAMS[self.name],
            self.url,
            self.payload,
            *what,
        ]
        must(command, f"{self.name}: {what[0]}")
