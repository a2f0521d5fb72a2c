"""Each stack has its own folder, however many start and clean up at once."""

import threading
from pathlib import Path

from outbox.embedded.folders import abandoned_folders, temporary_folder


def test_a_new_folder_is_never_taken_for_an_abandoned_one(tmp_path: Path) -> None:
    stop = threading.Event()

    def sweep() -> None:
        while not stop.is_set():
            for _ in abandoned_folders(tmp_path):
                pass

    sweepers = [threading.Thread(target=sweep) for _ in range(3)]
    for sweeper in sweepers:
        sweeper.start()
    try:
        for _ in range(300):
            with temporary_folder(tmp_path) as folder:
                (folder / "data").write_text("mine")
                assert (folder / "data").read_text() == "mine"
    finally:
        stop.set()
        for sweeper in sweepers:
            sweeper.join()
