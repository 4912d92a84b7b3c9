"""`python -m carrycast.cli`: the same as the command."""

import sys

from carrycast.cli import main

sys.exit(main())
