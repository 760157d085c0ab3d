"""How the documentation is built: ``.ci/docs``, which turns warnings into errors."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

import numpy.typing
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))


class ArrayLike:
    """Stands for numpy's union of that name, which is half a page when spelled out."""


numpy.typing.ArrayLike = ArrayLike  # before any module of ours is imported

project = "dpaudit"
author = "the dpaudit developers"
copyright = "The dpaudit developers"
version = release = version_of("dpaudit")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "reference"]
exclude_patterns = ["_extensions", "paper"]
myst_heading_anchors = 4
smartquotes = False
highlight_language = "text"

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_mock_imports = ["flwr", "pfl"]  # as in the directives of the reference
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

# What the theme leaves out for those who read with their ears or by the keyboard.
_HEARD = {
    'class="caption" role="heading"': 'class="caption" role="heading" aria-level="2"',
    '<aside class="sidebar-drawer"': '<aside aria-label="Pages" class="sidebar-drawer"',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    "<pre>": '<pre tabindex="0">',  # which can be wider than the window
}


def _make_readable(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        for page in Path(app.outdir).rglob("*.html"):
            text = page.read_text("utf-8")
            for bare, whole in _HEARD.items():
                text = text.replace(bare, whole)
            page.write_text(text, "utf-8")


def setup(app: Sphinx) -> None:
    """Mend pages once they are written."""
    app.connect("build-finished", _make_readable)
