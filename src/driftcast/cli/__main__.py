"""`python -m driftcast.cli`: the same as the command."""

import sys

from driftcast.cli import main

sys.exit(main())
