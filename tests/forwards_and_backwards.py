"""A batch rule that the library does not have; loaded first (`-p`), its tests cover it too."""

from dataclasses import dataclass

import numpy as np

from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.batch_rules.ordered import PositionedRule


@dataclass(frozen=True)
class ForwardsAndBackwards(PositionedRule):
    """Shuffled once, visited forwards and backwards by turns."""

    name = "forwards-and-backwards"
    resampling = Resampling.ONCE
    in_words = "shuffled once, forwards and backwards by turns"
    in_secret = "from one uniform shuffle drawn in secret, forwards and backwards by turns"

    def position_at(self, steps):
        epoch, position = np.divmod(steps, self.batches_per_epoch)
        return np.where(epoch % 2, self.batches_per_epoch - 1 - position, position)
