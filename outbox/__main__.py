"""`python -m outbox` is the command `outbox`."""

from outbox.cli import main

if __name__ == "__main__":
    main()
