"""The command line of the nemesis."""

import sys

from tests.nemesis.command import main

sys.exit(main(sys.argv[1:]))
