"""Audit federated training with Flower: is a user as private as is claimed?

    python examples/flower_users.py                        # an honest run
    python examples/flower_users.py --divide-noise-by 6    # the same with a bug
    python examples/flower_users.py --examples 20          # users of unlike weight
    python examples/flower_users.py --nodes                # canaries that are nodes

Ten users, and among them 1,000 canary users, all of them in each of four rounds, in
Flower's simulation. The second run adds a sixth of the noise that is stated. In the
third, canary users have 20 examples and the others one. The exit code is the verdict's:
1 if refuted.
"""

import argparse
import logging
import sys
import warnings

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.simulation import run_simulation

from dpaudit import ApproxDP, Design, GaussianDP, Key, OneRun, Result
from dpaudit.training.flower import (
    FlowerAudit,
    Nodes,
    Replies,
    canary_clients,
    canary_mod,
)

USERS, ROUNDS, CLIP, NOISE = 10, 4, 1.0, 8.0
CURVE = GaussianDP(mu=ROUNDS**0.5 / NOISE)
CLAIM = ApproxDP(epsilon=CURVE.epsilon_at(1e-5), delta=1e-5)
FEATURES = 2100

users = ClientApp(mods=[canary_mod])


@users.train()
def train(message: Message, context: Context) -> Message:
    """Take a few steps of linear regression on a user's own records."""
    user = int(context.node_config["partition-id"])
    rng = np.random.default_rng(user)
    inputs = rng.normal(size=(20, FEATURES))
    labels = inputs[:, 0] + 0.1 * rng.normal(size=20)
    sent = message.content["arrays"]
    (weights,) = sent.to_numpy_ndarrays()
    for _ in range(5):
        weights = weights - 0.01 * (inputs @ weights - labels) @ inputs / 20
    content = RecordDict(
        {
            "arrays": ArrayRecord([weights.astype(np.float32)]),
            "metrics": MetricRecord({"num-examples": 1}),
        }
    )
    return Message(content, reply_to=message)


def server(args: argparse.Namespace, found: list[Result]) -> ServerApp:
    """Return the server, with its audit."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        canaries = 200 if args.nodes else 1000
        design = Design(
            canaries=canaries, rules=OneRun(guesses=canaries // 5), claim=CLAIM
        )
        clients = USERS + (canaries if args.nodes else canary_clients(design))
        nodes = clients if args.nodes else USERS
        base = FedAvg(
            fraction_evaluate=0.0, min_available_nodes=nodes, min_train_nodes=nodes
        )
        strategy = DifferentialPrivacyServerSideFixedClipping(
            base, NOISE, CLIP, clients
        )
        arrays = ArrayRecord([np.zeros(FEATURES, np.float32)])
        audit = FlowerAudit(
            strategy,
            arrays,
            design=design,
            key=Key.generate(),
            insertion=Nodes() if args.nodes else Replies(),
            examples=args.examples,
            unchecked=("gradients", "interference"),  # of which nothing is seen here
        )
        print("commitment, to publish before the run:", audit.commitment.sha256)
        strategy.noise_multiplier /= args.divide_noise_by  # the bug, if any
        audit.probe(examples=sorted({1, args.examples}))
        audit.wrap().start(grid, arrays, num_rounds=args.rounds or ROUNDS)
        found.append(audit.finish())

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--divide-noise-by", type=float, default=1.0)
    parser.add_argument("--examples", type=int, default=1)
    parser.add_argument("--nodes", action="store_true")
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")  # of the simulation, about its own parts
    found: list[Result] = []
    run_simulation(
        server(args, found),
        users,
        num_supernodes=USERS + (200 if args.nodes else 0),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0}},
    )
    (result,) = found
    print(result)
    sys.exit(result.verdict.exit_code)


if __name__ == "__main__":
    main()
