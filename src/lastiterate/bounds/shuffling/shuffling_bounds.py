"""The bounds for secret positions, as the catalogue lists them: each the least of its stages."""

from lastiterate.bounds.bound import Citation
from lastiterate.bounds.line_style import DASHES, GREEN, LineStyle
from lastiterate.bounds.shuffling.balls_and_bins import BALLS_AND_BINS as AVERAGE_OF_BINS
from lastiterate.bounds.shuffling.bin_transport import HIDDEN_BINS
from lastiterate.bounds.shuffling.joint_bin_transport import HIDDEN_BINS_TOGETHER
from lastiterate.bounds.shuffling.joint_position_transport import HIDDEN_PLACE_TOGETHER
from lastiterate.bounds.shuffling.position_average import SHUFFLED_EACH_EPOCH, SHUFFLED_ONCE
from lastiterate.bounds.shuffling.position_transport import HIDDEN_PLACE
from lastiterate.bounds.staged_bound import StagedBound, least_of
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.run.training_run import TrainingRun


def shuffled(run: TrainingRun) -> PrivacyProfile:
    r"""The least of an average over secret positions and of transport between positions.

    **Bound.** :math:`\frac1l \sum_j \delta_{\mu_j}(\varepsilon)` over the l positions of an epoch,
    :math:`\mu_j` the value of `fixed-order/convex` for position j; or less, where late positions
    are compared with early ones of the other data set (`transport`), and with each other
    (`joint-transport`).

    **Holds when.** the order is drawn uniformly, in secret, once or before every epoch, and stays
    secret.  The average needs a fixed-order bound; transport needs convex, smooth losses, steps of
    at most 2/smoothness and a constant schedule.

    **Tight.** To a few per cent of an exactly solved instance where epochs have many batches.

    **Source.** This library; Bok, Su and Altschuler 2024, Theorem C.3; Ye and Shokri 2022, Lemma
    4.1; Kahane 1985.

    **Computed as** the least of its stages, each rounded up.
    """
    return SHUFFLED.guarantee(run)


def balls_and_bins(run: TrainingRun) -> PrivacyProfile:
    r"""The least of an average over the batch that an example picks and of hiding that pick.

    **Bound.** :math:`\frac1l \sum_j \delta_{\mu_j}(\varepsilon)` over the l batches of an epoch,
    given that no batch is too large; or :math:`E_j N(a_j, I)` against :math:`E_j N(-a_j, I)`, or
    against N(0, I) if the example is left out, with the shifts :math:`a_j` of each pick.

    **Holds when.** every example picks its batch independently and in secret; losses are convex and
    smooth, and no step exceeds 2/smoothness.  Hiding the pick needs bounded gradients.

    **Tight.** To a few per cent of an exactly solved instance.

    **Source.** This library; Bok, Su and Altschuler 2024, Theorem C.3; Kahane 1985.

    **Computed as** the least of its stages, each rounded up.
    """
    return BALLS_AND_BINS.guarantee(run)


SHUFFLED: StagedBound = least_of(
    HIDDEN_PLACE_TOGETHER,
    HIDDEN_PLACE,
    SHUFFLED_ONCE,
    SHUFFLED_EACH_EPOCH,
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
    HIDDEN_BINS_TOGETHER,
    HIDDEN_BINS,
    AVERAGE_OF_BINS,
    id="random-order/balls-and-bins",
    gives="an average over the secret batch that an example has picked on its own",
    source=Citation(
        "lastiterate",
        2026,
        "Hidden picks",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=balls_and_bins,
    charges="averages over the batch that the example has picked in secret",
    line_style=LineStyle(GREEN, DASHES[1]),
)
