"""All public bugs, by library."""

from dpaudit_lab.real_bugs import (
    datasynthesizer,
    diffprivlib,
    opendp,
    others,
    smartnoise,
)

__all__ = ["BUGS"]

BUGS = (
    *opendp.BUGS,
    *diffprivlib.BUGS,
    *smartnoise.BUGS,
    *datasynthesizer.BUGS,
    *others.BUGS,
)
