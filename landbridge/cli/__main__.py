"""``python -m landbridge.cli``: the command in interpreters whose ``bin`` has no ``landbridge`` script."""

import sys

from landbridge.cli.main import main

sys.exit(main())
