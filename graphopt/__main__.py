"""`python -m graphopt` is the `graphopt` command."""

import sys

from graphopt.cli.main import main

sys.exit(main())
