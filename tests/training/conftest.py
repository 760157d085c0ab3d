"""What tests of several audits of training ask of memory."""

import gc

import pytest


@pytest.fixture
def reached():
    """Return all objects that can be reached from one, which holds no class."""

    def objects(start):
        found, todo = {}, [start]
        while todo:
            thing = todo.pop()
            if id(thing) not in found and not isinstance(thing, type):
                found[id(thing)] = thing
                todo += gc.get_referents(thing)
        return list(found.values())

    return objects
