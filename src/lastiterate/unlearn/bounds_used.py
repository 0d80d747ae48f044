"""Which bounds answer where not all of them may, or where others would take too long."""

from lastiterate.bounds.catalogue import CATALOGUE, PUBLISHED, QUICKLY_COMPOSED

_SLOW = (
    "random-order/hidden-place-together",
    "random-order/sampled-hidden-end",
    "random-order/poisson-hidden-participations",
    "random-order/balls-and-bins-hidden",
    "random-order/balls-and-bins-hidden-together",
)
# Those that tell at once about where to look.
QUICK = [id_ for id_ in CATALOGUE if id_ not in _SLOW and not id_.startswith(PUBLISHED)]

# A bound that hides places by exchanging examples would have to exchange them in the extra steps,
# too, where these go on in the order of the training.
GIVEN_THE_ORDER = [
    "composition",
    "fixed-order",
    "random-order/shuffled-once",
    "random-order/balls-and-bins",
]
# Of several examples at once, the curves of hidden places take long, too.
QUICKLY_GROUPED = [one for one in QUICKLY_COMPOSED if "hidden" not in one]
