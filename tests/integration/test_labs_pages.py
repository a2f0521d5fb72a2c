"""How a lab reads a daemon's pages: a daemon that stops in the middle of an answer is one that does not answer."""

import socket
from threading import Thread

import pytest

from labs.worker import Worker


@pytest.mark.parametrize("ends", [False, True], ids=["hangs", "ends"])
@pytest.mark.parametrize("status", ["200 OK", "503 Service Unavailable"])
def test_an_answer_whose_body_does_not_come_is_none(status: str, ends: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def answer() -> None:
            held.append(server.accept()[0])
            held[0].recv(1024)
            held[0].sendall(f"HTTP/1.1 {status}\r\ncontent-length: 10\r\n\r\n".encode())
            if ends:
                held[0].close()

        serving = Thread(target=answer)
        serving.start()
        worker = Worker.__new__(Worker)
        worker.port = server.getsockname()[1]
        assert worker.page("/readyz", 0.3) == (0, "")
        serving.join()
        held[0].close()
