"""The law, or the moments, of the energy of random participations and of their residual."""
