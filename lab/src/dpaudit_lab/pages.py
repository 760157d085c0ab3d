"""Tables between the markers of a Markdown page that says what they mean.

A page has pairs of comments, ``<!-- table: NAME -->`` and ``<!-- end -->``. What stands
between them is written anew; the rest is left as it is.
"""

import re
from collections.abc import Callable, Collection

from dpaudit.errors import InvalidInputError

__all__ = ["fill_page"]

_MARKED = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_page(
    page: str, names: Collection[str], text_of: Callable[[str], str | None]
) -> str:
    r"""Return a page with its tables written anew.

    Args:
        page: Text with markers.
        names: What tables may be called.
        text_of: From a name to its table; None leaves what stands there.

    Raises:
        InvalidInputError: The page has no markers, or unknown ones.

    Example:
        >>> page = "<!-- table: sums -->\nold\n<!-- end -->"
        >>> print(fill_page(page, ["sums"], "| new {} |".format))
        <!-- table: sums -->
        <BLANKLINE>
        | new sums |
        <BLANKLINE>
        <!-- end -->
    """
    marked = [name for _, name, _ in _MARKED.findall(page)]
    if not marked or any(name not in names for name in marked):
        raise InvalidInputError(
            "a page names its tables by comments <!-- table: NAME --> and <!-- end "
            f"-->, NAME one of {', '.join(names)}; got {', '.join(marked) or 'none'}"
        )

    def rewritten(mark: re.Match[str]) -> str:
        text = text_of(mark[2])
        return mark[0] if text is None else f"{mark[1]}\n{text}\n\n{mark[3]}"

    return _MARKED.sub(rewritten, page)
