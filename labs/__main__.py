"""`python -m labs`: the command line of the labs."""

import sys


def main() -> None:
    """Importing takes a second; Ctrl-C meanwhile must not print a traceback either."""
    try:
        from labs.commands import main as labs  # noqa: PLC0415

        labs()
    except ModuleNotFoundError as missing:
        if (missing.name or "labs").split(".")[0] in ("labs", "outbox"):
            raise
        # `scripts/run` installs what the product needs; the labs need more.
        print(f"labs: the package {missing.name} is not installed here; run scripts/lab instead", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("labs: ended by SIGINT; nothing is running", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
