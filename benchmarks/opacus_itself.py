"""Whether DP-SGD as written in rivals.py is what Opacus does: noise and accuracy, side by side.

python benchmarks/opacus_itself.py --data folder
"""

import argparse
import json
from pathlib import Path

import numpy as np
import rivals
import torch
from datasets import load
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from torch.utils.data import DataLoader, TensorDataset

PASSES = 20


def trained_by_opacus(data, multiplier, setting, seed):
    """Accuracy of a linear model without bias on rows that end in a constant."""
    rows, labels, test_rows, test_labels = data
    torch.manual_seed(seed)

    def inputs(part):
        constant = np.full((len(part), 1), rivals.INTERCEPT, np.float32)
        return torch.from_numpy(np.hstack([part, constant]))

    targets = torch.from_numpy(labels.astype(np.float32))
    model = torch.nn.Linear(rows.shape[1] + 1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    loader = DataLoader(
        TensorDataset(inputs(rows), targets), batch_size=len(rows) // setting["batches"]
    )
    model, optimiser, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=setting["step_size"]),
        data_loader=loader,
        noise_multiplier=multiplier,
        max_grad_norm=setting["clip"] * rivals.RADIUS,
    )
    loss = torch.nn.BCEWithLogitsLoss()
    for _ in range(PASSES):
        for batch, target in loader:
            optimiser.zero_grad()
            loss(model(batch)[:, 0], target).backward()
            optimiser.step()
    with torch.no_grad():
        return float(((model(inputs(test_rows))[:, 0] > 0).numpy() == test_labels).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--results", default=Path(__file__).parent / "utility.json", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--datasets", nargs="+", default=["imdb"], choices=["imdb", "adult"])
    options = parser.parse_args()
    results = json.loads(options.results.read_text())
    for name in options.datasets:
        data = load(name, options.data)
        for epsilon in (1.0, 4.0):
            setting = results[f"{name}|{PASSES}|{epsilon:g}|DP-SGD as in Opacus"]["setting"]
            rate, steps = 1 / setting["batches"], PASSES * setting["batches"]
            theirs = get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=rivals.DELTA,
                sample_rate=rate,
                steps=steps,
                accountant="prv",
            )
            ours = rivals.poisson_multiplier(epsilon, rate, steps)
            seeds = range(options.seeds)
            opacus = [100 * trained_by_opacus(data, theirs, setting, seed) for seed in seeds]
            trials = [(epsilon, setting)]
            here = [
                100 * rivals.dp_sgd(data, PASSES, seed, trials, poisson=True)[0] for seed in seeds
            ]
            print(
                f"{name}, epsilon {epsilon:g}: noise multiplier {theirs:.4f} by Opacus, {ours:.4f} "
                f"here; accuracy {np.mean(opacus):.2f} ± {np.std(opacus):.2f} by Opacus, "
                f"{np.mean(here):.2f} ± {np.std(here):.2f} here",
                flush=True,
            )


if __name__ == "__main__":
    main()
