"""products: the drain on Elasticsearch and on OpenSearch, by turns, each against raw `_bulk` on the same server."""

from contextlib import ExitStack
from dataclasses import asdict

from bench.drain import Shape, prepared
from bench.result import BenchmarkResult, CannotRun, Threshold, progress
from bench.stack import BenchmarkServers
from labs.client import server_of

BAR = Threshold("ratio on OpenSearch / ratio on Elasticsearch", 0.90, 1.00)


def run(
    stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 3, release: str = "opensearch-2", **shape: int
) -> BenchmarkResult:
    """`--set`: release, and those of the drain. Both servers run all the time; only one of them has work."""
    chosen = Shape.of(shape, smoke=smoke)
    result = BenchmarkResult("products", smoke)
    result.settings, result.documents = asdict(chosen), chosen.documents
    rounds = 1 if smoke else rounds
    with stack.beside(release) as other, ExitStack() as undo:
        found = {server_of(one.client()): one for one in (stack, other)}
        if [server.product for server in found] != ["elasticsearch", "opensearch"]:
            raise CannotRun("it needs Elasticsearch as the usual server, and OpenSearch beside it")
        result.servers = {server.product.value: server.number for server in found}
        sides = [
            undo.enter_context(prepared(one, chosen, warm=not smoke, prefix=f"{server.product}: "))
            for server, one in found.items()
        ]
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            for one_round in sides:
                stack.quiet()
                other.quiet()
                one_round(result)
    result.judge(BAR, result.divide("OpenSearch / Elasticsearch", "opensearch: ratio", "elasticsearch: ratio"))
    return result
