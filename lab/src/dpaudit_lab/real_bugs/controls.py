"""All correct mechanisms: none may be called faulty more often than alpha."""

from dpaudit_lab.real_bugs import (
    controls_diffprivlib,
    controls_opendp,
    controls_plain,
)

__all__ = ["CONTROLS"]

CONTROLS = (
    *controls_plain.CONTROLS,
    *controls_opendp.CONTROLS,
    *controls_diffprivlib.CONTROLS,
)
