"""`python -m carrycast`: the command line, for installations whose script is not on the path."""

import sys

from carrycast.cli import main

if __name__ == "__main__":
    sys.exit(main())
