"""What no file of the package does: unpickle, evaluate a text, call a shell."""

import ast
from pathlib import Path

import pytest

import dpaudit

PACKAGE = Path(dpaudit.__file__).parent
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
# What a copy of the process writes to a pipe that only it and the process hold.
OWN_PIPE = {"training/process_copy.py": ["pickle"]}
CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen"}


def named(node):
    """Return the dotted name of what is called, as far as it has one."""
    if isinstance(node, ast.Attribute):
        return f"{named(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def faults(source):
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found = MODULES & {alias.name.split(".")[0] for alias in names}
            case ast.ImportFrom(module=module):
                found = MODULES & {(module or "").split(".")[0]}
            case ast.Call(func=func, keywords=keywords):
                options = {each.arg: ast.unparse(each.value) for each in keywords}
                found = CALLS & {named(func)}
                if options.get("shell", "False") != "False":
                    found = {"shell"}
                if named(func) in ("np.load", "numpy.load", "torch.load"):
                    found = {"load"}
                if options.get("allow_pickle", "False") != "False":
                    found = {"allow_pickle"}
            case _:
                found = set()
        yield from sorted(found)


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from pickle import loads", "eval('1')", "os.system('ls')",
     "subprocess.run('ls', shell=True)", "np.load(path)",
     "np.savez(file, allow_pickle=True)"],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(source):
    assert list(faults(source))


def test_no_file_unpickles_evaluates_or_calls_a_shell():
    found = {
        path.relative_to(PACKAGE).as_posix(): here
        for path in PACKAGE.rglob("*.py")
        if (here := list(faults(path.read_text("utf-8"))))
    }
    assert found == OWN_PIPE
