"""How the documentation is built: ``.ci/docs``, which turns warnings into errors."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

import numpy.typing

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))


class ArrayLike:
    """Stands for numpy's union of that name, which is half a page when spelled out."""


numpy.typing.ArrayLike = ArrayLike  # before any module of ours is imported

project = "dpaudit"
author = "the dpaudit developers"
copyright = "The dpaudit developers"
version = release = version_of("dpaudit")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "reference"]
exclude_patterns = ["_extensions"]
myst_heading_anchors = 4
smartquotes = False
highlight_language = "text"

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
napoleon_use_rtype = False

# Everything of ours must resolve; what others document is not linked, as the build
# reads nothing from the network.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!dpaudit\b).*"),
    ("py:.*", r".*\.([A-Z]|_\w+)(\.\w+)?"),  # type variables; what is not public
    ("py:class", r"dpaudit\.game\.result\.JudgingBound"),  # a union of bounds
]

html_theme = "furo"
html_title = f"dpaudit {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
