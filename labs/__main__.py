"""`python -m labs`."""

from labs.commands import main

main()
