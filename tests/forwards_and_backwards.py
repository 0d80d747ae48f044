"""A batch rule that the library does not have; loaded first (`-p`), its tests cover it too."""

from dataclasses import dataclass

import numpy as np

from lastiterate.run.batch_rules.base import Drawn
from lastiterate.run.batch_rules.positioned import PlacedRule


@dataclass(frozen=True)
class ForwardsAndBackwards(PlacedRule):
    """Shuffled once, visited forwards and backwards by turns."""

    name = "forwards-and-backwards"
    drawn = Drawn.ONCE
    in_words = "shuffled once, forwards and backwards by turns"
    in_secret = "from one uniform shuffle drawn in secret, forwards and backwards by turns"

    def visited(self, steps):
        epoch, place = np.divmod(steps, self.batches_per_epoch)
        return np.where(epoch % 2, self.batches_per_epoch - 1 - place, place)
