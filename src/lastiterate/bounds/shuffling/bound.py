"""The bounds for secret positions that the catalogue lists, each the least of its stages."""

from lastiterate.bounds.balls_and_bins.mixtures import (
    BIN_AVERAGE,
    BIN_EARLY_MIXTURE,
    BIN_MIXTURE,
    BIN_WINDOWED_MIXTURE,
)
from lastiterate.bounds.bound import DASHES, GREEN, Citation, LineStyle, StagedBound, least_of
from lastiterate.bounds.momentum import MOMENTUM_TRANSPORT
from lastiterate.bounds.shuffling.average import (
    AVERAGE_EACH_EPOCH,
    AVERAGE_ONCE,
    LAST_EPOCHS_AVERAGE,
)
from lastiterate.bounds.shuffling.early_transport import EARLY_TRANSPORT
from lastiterate.bounds.shuffling.transport import JOINT_TRANSPORT
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.training_run import TrainingRun


def shuffled(run: TrainingRun) -> PrivacyProfile:
    r"""The least of an average over secret positions and of transport between positions.

    **Bound.** :math:`\frac1l \sum_j \delta_{\mu_j}(\varepsilon)` over the l positions of an epoch,
    :math:`\mu_j` the value of `fixed-order/convex` for position j.  Or less, with transport of mass
    from late positions to early ones (`random-order/shuffled/joint-transport`), in short steps with
    noise before participations (`random-order/shuffled/early-transport`).

    **Holds when.** the order is drawn uniformly, in secret, once or before every epoch, and stays
    secret.  The average needs a fixed-order bound; transport needs convex, smooth losses, steps of
    at most 2/smoothness and a constant schedule.

    **Tight.** To a few per cent of an exactly solved instance where epochs have many batches.

    **Source.** This library (`docs/tightness.md#transport`); Bok, Su and Altschuler 2024, Theorem
    C.3; Ye and Shokri 2022, Lemma 4.1; Kahane 1985.

    **Computed as** the least of its stages, each rounded up.
    """
    return SHUFFLED.guarantee(run)


def balls_and_bins(run: TrainingRun) -> PrivacyProfile:
    r"""The least of an average and of mixtures over the batch that an example draws.

    **Bound.** :math:`\frac1l \sum_j \delta_{\mu_j}(\varepsilon)` over the l batches of an epoch,
    given that no batch is too large.  Or the divergence of :math:`E_j N(a_j, I)` and
    :math:`E_j N(-a_j, I)`, or N(0, I) if the example is left out, with the shifts :math:`a_j` of
    position j.

    **Holds when.** every example draws its batch independently and in secret; losses are convex and
    smooth, and no step exceeds 2/smoothness.  Mixtures need bounded gradients.

    **Tight.** To a few per cent of an exactly solved instance.

    **Source.** This library (`docs/tightness.md#balls-and-bins`); Bok, Su and Altschuler 2024,
    Theorem C.3; Kahane 1985.

    **Computed as** the least of its stages, each rounded up.
    """
    return BALLS_AND_BINS.guarantee(run)


SHUFFLED: StagedBound = least_of(
    EARLY_TRANSPORT,
    JOINT_TRANSPORT,
    AVERAGE_ONCE,
    AVERAGE_EACH_EPOCH,
    LAST_EPOCHS_AVERAGE,
    MOMENTUM_TRANSPORT,
    id="random-order/shuffled",
    gives="an average over the example's secret position in a shuffled order, which stays hidden",
    source=Citation(
        "lastiterate",
        2026,
        "Hidden positions of shuffled runs",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=shuffled,
    charges="averages over the example's secret position, which stays hidden",
    line_style=LineStyle(GREEN),
)

BALLS_AND_BINS: StagedBound = least_of(
    BIN_EARLY_MIXTURE,
    BIN_WINDOWED_MIXTURE,
    BIN_MIXTURE,
    BIN_AVERAGE,
    id="random-order/balls-and-bins",
    gives="an average over the secret batch that an example has drawn on its own",
    source=Citation(
        "lastiterate",
        2026,
        "Mixtures over hidden positions",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=balls_and_bins,
    charges="averages over the batch that the example has drawn in secret",
    line_style=LineStyle(GREEN, DASHES[1]),
)
