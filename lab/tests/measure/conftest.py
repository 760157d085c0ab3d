"""The scripts of ``lab/measure`` can be imported by their names."""

import sys
from pathlib import Path

MEASURE = Path(__file__).parents[2] / "measure"
# Last: names there are not those of tests.
sys.path += [str(MEASURE), str(MEASURE / "mutation")]
