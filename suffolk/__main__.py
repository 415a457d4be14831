"""python -m suffolk: the same as the suffolk command."""

import sys

from suffolk.cli.main import main

sys.exit(main())
