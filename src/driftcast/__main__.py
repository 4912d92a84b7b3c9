"""`python -m driftcast`: the command line where its script is not on the path."""

import sys

from driftcast.cli import main

if __name__ == "__main__":
    sys.exit(main())
