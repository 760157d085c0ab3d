"""Sentences about clients and users of federated training."""

from collections.abc import Mapping
from typing import Final

from dpaudit.game.text.terms import FaultText, Template, counted

__all__ = ["FAULTS", "SENTENCES"]

_LATER: Final = (
    "canary clients are replies that the server adds, which are made after it"
)


SENTENCES: Final[Mapping[str, Template]] = {
    "clients.nodes": "canary clients are nodes, and are sampled and asked as nodes are",
    "clients.nodes_would": f"{_LATER}; FlowerAudit(..., insertion=Nodes()) checks it",
    "clients.every_round": "canary clients are in every round, as the claim allows "
    "every client to",
    "clients.untrained": "canary clients answer without training; audit.probe() "
    "checks whether one client's part depends on others",
    "clients.none_above": "no canary is above the norm, so that nothing shows whether "
    "updates are cut",
    "clients.cut": "canary clients pass it as others do, with updates of {norm:g} "
    "times the clipping norm",
    "clients.weighed": lambda v: (
        "canary clients are weighed and added up as others are, each with "
        f"{counted(v.examples, 'example')}"
    ),
    "clients.examples_alike": "clients of {few} and of {many} examples change the mean "
    "alike",
    "users.pass": "canaries are users, and pass it as users do",
    "users.cut": "canaries are users, and pass it as users do, at {norm:g} times the "
    "clipping bound",
    "users.sampled_would": "canaries are added to cohorts; insertion=Sampled() checks "
    "it, or users=... if their number is known",
    "clients.rounds_lost": lambda v: (
        f"{counted(v.rounds, 'round')} gave no model, as "
        "clients failed; nothing was released there, and it is not counted"
    ),
    "clients.silent": lambda v: (
        f"{counted(v.answers, 'answer')} of canary clients did "
        "not come, and put nothing in, whatever the coin"
    ),
    "clients.more_answered": lambda v: (
        "more clients than num_sampled_clients answered "
        f"in {counted(v.rounds, 'round')}; noise is larger than it must be"
    ),
}
FAULTS: Final[Mapping[str, FaultText]] = {
    "clients.fewer_answered": FaultText(
        what="noise is for more clients than answered, so that one of them puts more "
        "into their mean than noise is for",
        measured="{answered:.0f} answers in some round",
        expected="num_sampled_clients = {clients}",
        cause="a number that does not count who is asked, or clients that do not "
        "answer",
    ),
    "users.more_rounds": FaultText(
        what="users may take part in more rounds than are accounted for",
        measured="{rounds} rounds",
        expected="{accounted}",
        cause="fewer compositions in the accounting than were made",
    ),
}
