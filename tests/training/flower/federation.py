"""A small federation in one process: Flower's strategies and clients, without a wire.

Messages go from the strategy to the client app and back, as they are; nodes named
silent do not answer, failing ones answer with an error.
"""

import logging

import numpy as np
from flwr.app import (
    ArrayRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.supercore.task_identity import TaskIdentity

from dpaudit import ApproxDP, Design, GaussianDP, OneRun
from dpaudit.game.setting import Setting
from dpaudit.testing import fixed_key
from dpaudit.training.flower import FlowerAudit, Nodes, canary_clients

logging.getLogger("flwr").setLevel(logging.CRITICAL)
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1

KEY = fixed_key(bytes(range(32)))
CLIP = 0.5


class LocalGrid(Grid):
    def __init__(self, nodes, app, *, silent=(), failing=()):
        self.nodes, self.app = [*nodes], app
        self.silent, self.failing, self.sent = {*silent}, {*failing}, []

    def set_run(self, run): ...

    @property
    def run(self): ...

    def create_message(self, *arguments, **given): ...

    def push_messages(self, messages): ...

    def pull_messages(self, message_ids): ...

    def get_node_ids(self):
        return list(self.nodes)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        self.sent.append(messages)
        return [reply for message in messages if (reply := self._ask(message))]

    def _ask(self, message):
        node = message.metadata.dst_node_id
        if node in self.silent:
            return None
        if node in self.failing:
            return Message(Error(code=0, reason="gone"), reply_to=message)
        context = Context(1, node, {"partition-id": node}, RecordDict(), {})
        return self.app(message, context)


def client_app(*mods, examples=1, size=0.3 * CLIP):
    """Clients that move the model by a seeded update of one length."""
    app = ClientApp(mods=[*mods])

    @app.train()
    def train(message, context):
        ((name, record),) = message.content.array_records.items()
        seed = [context.node_id, int(message.content["config"]["server-round"])]
        rng = np.random.default_rng(seed)
        update = [rng.normal(size=array.shape) for array in record.values()]
        length = np.sqrt(sum(np.square(each).sum() for each in update))
        arrays = [
            (old + size / length * each).astype(old.dtype)
            for old, each in zip(record.to_numpy_ndarrays(), update, strict=True)
        ]
        named = ArrayRecord(
            dict(zip(record, ArrayRecord(arrays).values(), strict=True))
        )
        metrics = MetricRecord({"num-examples": examples, "loss": 0.5})
        content = RecordDict({name: named, "told": metrics})
        return Message(content, reply_to=message)

    return app


def model(dtype=np.float32):
    rng = np.random.default_rng(5)
    first = rng.normal(size=(30, 20)).astype(dtype)
    return [first, np.ones(60, dtype)]


def design(canaries=200, *, mu=0.5, guesses=None, **setting):
    claim = ApproxDP(epsilon=GaussianDP(mu=mu).epsilon_at(1e-5), delta=1e-5)
    rules = OneRun(guesses=guesses or canaries // 3)
    return Design(
        canaries=canaries, rules=rules, claim=claim, setting=Setting(**setting)
    )


def private(clients, *, noise=2.0, kind=DifferentialPrivacyServerSideFixedClipping):
    """A strategy of Flower's that is told how many clients there are."""
    base = FedAvg(fraction_evaluate=0.0)
    if "Adaptive" in kind.__name__:
        return kind(base, noise, clients, initial_clipping_norm=CLIP)
    return kind(base, noise, CLIP, clients)


def opened(
    *,
    plan=None,
    real=10,
    kind=DifferentialPrivacyServerSideFixedClipping,
    noise=2.0,
    divide_noise_by=1.0,
    arrays=None,
    **given,
):
    """An audit around a strategy that is told the right number of clients."""
    plan = plan or design()
    canaries = canary_clients(plan, given.get("participation"))
    if isinstance(given.get("insertion"), Nodes):
        canaries = plan.canaries
    strategy = private(real + canaries, noise=noise, kind=kind)
    given = {"key": KEY, **given}
    arrays = model() if arrays is None else arrays
    audit = FlowerAudit(strategy, arrays, design=plan, **given)
    strategy.noise_multiplier /= divide_noise_by
    return audit, strategy


def train(
    audit, *, rounds=3, real=10, app=None, nodes=None, seed=1, kind=LocalGrid, **grid
):
    """Train through ``start``; return the models before and after each round."""
    np.random.seed(seed)  # noqa: NPY002 (what Flower draws its noise from)
    everyone = range(100, 100 + real) if nodes is None else nodes
    grid = kind(everyone, app or client_app(), **grid)
    models = []

    def keep(_round, arrays):
        models.append(arrays.to_numpy_ndarrays())

    audit.wrap().start(grid, ArrayRecord(model()), num_rounds=rounds, evaluate_fn=keep)
    return models, grid
