"""Public privacy bugs of released libraries, each cited, and correct mechanisms.

``cases`` says what a case is; one module a library makes the bugs, and ``catalogue``
lists them; ``controls`` lists mechanisms that keep their claim. A library is imported
when a case is made, so each case names what has to be installed.
"""
