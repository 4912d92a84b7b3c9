"""`python -m carrycast.cli` does the same as the command `carrycast`."""

import sys

from carrycast.cli import main

sys.exit(main())
