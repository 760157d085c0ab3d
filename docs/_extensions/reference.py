"""Directives of the reference pages: each writes down what the package itself says.

``public-names``  the names of the public face, and where each lives
``modules``       a package's modules, each with its documented members
``commands``      every command with its options, from the command line's own definition
``answers``       what can be audited with what somebody has, as ``dpaudit which`` says
``schemas``       the published JSON schemas, each with what it describes

Nothing of it is written by hand, so nothing of it can be out of date.
"""

import json
import pkgutil
from collections.abc import Iterator
from importlib import import_module, resources
from inspect import cleandoc, getdoc
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.ext.autodoc.mock import mock
from sphinx.util.docutils import SphinxDirective
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

import dpaudit
from dpaudit.cli import app
from dpaudit.cli.which import ANSWERS
from dpaudit.game.text.terms import capital
from dpaudit_lab.cli import app as lab

Command = TyperCommand | TyperGroup
Parameter = TyperArgument | TyperOption


class PublicNames(SphinxDirective):
    """The names of ``dpaudit``, one row each."""

    def run(self) -> list[nodes.Node]:
        """Return a table of names."""
        rows = ["| name | what it is |", "|---|---|"]
        for name in dpaudit.__all__:
            value = getattr(dpaudit, name)
            if isinstance(value, ModuleType):
                rows.append(f"| `{value.__name__}` | {_first_line(value)} |")
                continue
            role = "class" if isinstance(value, type) else "func"
            home = f"{value.__module__}.{name}"
            rows.append(f"| {{py:{role}}}`{name} <{home}>` | {_first_line(value)} |")
        return self.parse_text_to_nodes("\n".join(rows))


class Modules(SphinxDirective):
    """A package's modules, one section each."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        text = "\n".join(_module_section(name) for name in _modules(self.arguments[0]))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Commands(SphinxDirective):
    """Every command of the command line."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each command."""
        text = "\n".join(command_lines())
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Answers(SphinxDirective):
    """What can be audited with what somebody has."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each thing that somebody may have."""
        text = "\n".join(answer_lines())
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Schemas(SphinxDirective):
    """The JSON schemas that the package publishes."""

    def run(self) -> list[nodes.Node]:
        """Return a table of schemas."""
        rows = ["| file | what it describes | its fields |", "|---|---|---|"]
        for name, schema in schemas():
            fields = ", ".join(f"`{field}`" for field in schema.get("properties", {}))
            rows.append(f"| `{name}` | {schema['title']} | {fields} |")
        return self.parse_text_to_nodes("\n".join(rows))


# They want other versions of what the other extras use.
ABSENT = ("flwr", "pfl")


def _first_line(value: object) -> str:
    return (getdoc(value) or "").partition("\n")[0].replace("``", "`")


def _modules(package: str) -> Iterator[str]:
    """Yield the modules of a package that are no secret, the package's own last."""
    found = _imported(package)
    if not hasattr(found, "__path__"):
        yield package
        return
    if getattr(found, "__all__", None):
        yield package
    for module in pkgutil.iter_modules(found.__path__):
        if module.name.startswith("_"):
            continue
        name = f"{package}.{module.name}"
        if module.ispkg:
            yield from _modules(name)
        else:
            yield name


def _imported(name: str) -> ModuleType:
    """Import a module; what cannot be installed beside the rest is stood in for."""
    with mock([*ABSENT]):
        return import_module(name)


def _module_section(name: str) -> str:
    """Return the section of a module; a package that only gathers has names alone."""
    title = f"``{name}``"
    lines = [title, "-" * len(title), "", f".. automodule:: {name}"]
    if not hasattr(_imported(name), "__path__"):
        lines.append("   :members:")
    return "\n".join([*lines, ""])


def answer_lines() -> Iterator[str]:
    """Yield the lines about all that can be audited, in MyST."""
    for answer in ANSWERS.values():
        yield f"\n## {capital(answer.what)}\n"
        yield f"*Can be shown:* {answer.shows}\n"
        yield f"*Cannot be shown:* {answer.not_shown}\n"
        lines = "\n".join(answer.lines)
        yield f"```text\n{lines}\n```\n"
        yield f"[How it is done](/{answer.page})\n"


def command_lines() -> Iterator[str]:
    """Yield the lines of all commands, in MyST."""
    yield from _command_lines("dpaudit", get_command(app))
    yield from _command_lines("dpaudit-lab", get_command(lab))


def _command_lines(path: str, command: Command) -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for name, child in command.commands.items():
            yield from _command_lines(f"{path} {name}", child)
        return
    words = [path, *(_usage(parameter) for parameter in command.params)]
    yield f"\n## `{path}`\n"
    yield f"```text\n{' '.join(filter(None, words))} [OPTIONS]\n```\n"
    yield f"{cleandoc(command.help or '')}\n"
    yield "| option | what it is | unless given |\n|---|---|---|"
    yield from filter(None, map(_parameter_row, command.params))


def _usage(parameter: Parameter) -> str:
    if not isinstance(parameter, TyperArgument):
        return ""
    name = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _parameter_row(parameter: Parameter) -> str:
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return ""
    if isinstance(parameter, TyperArgument):
        names = f"`{parameter.name.upper()}`"
    else:
        both = [*parameter.opts, *parameter.secondary_opts]
        names = ", ".join(f"`{name}`" for name in both)
    text = (getattr(parameter, "help", None) or "").replace("\n", " ")
    return f"| {names} | {_escaped(text)} | {_unless_given(parameter)} |"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


def _unless_given(parameter: Parameter) -> str:
    if parameter.required:
        return "it is needed"
    default = parameter.default
    if default is None or default is False or callable(default) or default == ():
        return ""
    return f"`{getattr(default, 'value', default)}`"


def schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each schema's file name and content."""
    folder = resources.files("dpaudit") / "schemas"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".schema.json"):
            yield file.name, json.loads(file.read_text(encoding="utf-8"))


def escape_bars(
    _app: Sphinx, _what: str, _name: str, _of: object, _how: object, lines: list[str]
) -> None:
    """Keep |x| of docstrings an absolute value; reStructuredText would replace it."""
    in_session = False
    for number, line in enumerate(lines):
        in_session = bool(line.strip()) and (in_session or ">>> " in line)
        if "|" in line and not in_session:
            parts = line.split("``")  # every second one is literal
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[number] = "``".join(parts)


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of the directives."""
    app.add_directive("public-names", PublicNames)
    app.add_directive("modules", Modules)
    app.add_directive("commands", Commands)
    app.add_directive("answers", Answers)
    app.add_directive("schemas", Schemas)
    app.connect("autodoc-process-docstring", escape_bars)
    for kind in PyObject.doc_field_types:
        if kind.name == "variable":
            kind.label = "Fields"  # of a frozen value; Sphinx calls them variables
    return {"parallel_read_safe": True, "parallel_write_safe": True}
