"""Exact privacy of Gaussian autoregressions, and BSA's closed forms as printed.

`gdp_of_autoregression` uses only the law of a Gaussian; the `stated_` functions are BSA's
theorems with no rearrangement.  Noise is per coordinate on the averaged gradient, before the
step size; `sensitivity` is BSA's L.  Every result is an mpf.
"""

from mpmath import mp, mpf

DIGITS = 60


def gdp_of_autoregression(*, contractions, shifts, noise_stds, release_noise_std=0):
    """mu of x_T + release noise, x_k = c_k x_{k-1} + s_k [one world only] + N(0, n_k^2)."""
    with mp.workdps(DIGITS):
        shift, variance = mpf(0), mpf(0)
        for c, s, n in zip(contractions, shifts, noise_stds, strict=True):
            shift = mpf(c) * shift + mpf(s)
            variance = mpf(c) ** 2 * variance + mpf(n) ** 2
        variance += mpf(release_noise_std) ** 2
        return abs(shift) / mp.sqrt(variance)


def contraction_of_step(*, step_size, strong_convexity, smoothness):
    """c = max(|1 - eta m|, |1 - eta M|) (BSA Lemma 2.8)."""
    with mp.workdps(DIGITS):
        eta = mpf(step_size)
        return max(abs(1 - eta * mpf(strong_convexity)), abs(1 - eta * mpf(smoothness)))


def stated_gdp_full_batch_composition(*, steps, examples, noise_std, sensitivity):
    """BSA Theorem 4.1."""
    with mp.workdps(DIGITS):
        return mpf(sensitivity) / (mpf(examples) * mpf(noise_std)) * mp.sqrt(mpf(steps))


def stated_gdp_full_batch_strongly_convex(*, steps, contraction, examples, noise_std, sensitivity):
    """BSA Theorem 4.2, for 0 <= c < 1."""
    with mp.workdps(DIGITS):
        c, t = mpf(contraction), int(steps)
        growth = (1 - c**t) / (1 + c**t) * (1 + c) / (1 - c)
        return mp.sqrt(growth) * mpf(sensitivity) / (mpf(examples) * mpf(noise_std))


def stated_gdp_full_batch_bounded(*, step_size, diameter, examples, noise_std, sensitivity):
    """BSA Theorem 4.3; it needs steps >= D n / (eta L)."""
    with mp.workdps(DIGITS):
        eta, D, n, L = mpf(step_size), mpf(diameter), mpf(examples), mpf(sensitivity)
        window = mp.ceil(D * n / (eta * L))
        return mp.sqrt(3 * L * D / (eta * n) + L**2 / n**2 * window) / mpf(noise_std)


def stated_gdp_full_batch_bounded_best_window(
    *, steps, step_size, diameter, examples, noise_std, sensitivity
):
    """The first claim of BSA Theorem C.7, the least over windows R = t - tau in 1..steps."""
    with mp.workdps(DIGITS):
        s = mpf(step_size) * mpf(sensitivity) / mpf(examples)
        std, D = mpf(step_size) * mpf(noise_std), mpf(diameter)
        return min((s * mp.sqrt(R) + D / mp.sqrt(R)) / std for R in range(1, steps + 1))


def stated_gdp_cyclic_composition(*, epochs, batch_size, noise_std, sensitivity):
    """BSA Theorem 4.4."""
    with mp.workdps(DIGITS):
        return mpf(sensitivity) / (mpf(batch_size) * mpf(noise_std)) * mp.sqrt(mpf(epochs))


def stated_gdp_cyclic_strongly_convex(
    *, epochs, batches, contraction, batch_size, noise_std, sensitivity
):
    """BSA Theorem 4.5, for 0 < c < 1; the root ends before L / (b sigma) (Table 9)."""
    with mp.workdps(DIGITS):
        c, l, E = mpf(contraction), int(batches), int(epochs)  # noqa: E741 - the paper's letter
        head = c ** (2 * l - 2) * (1 - c**2) / (1 - c**l) ** 2
        tail = (1 - c ** (l * (E - 1))) / (1 + c ** (l * (E - 1)))
        return mp.sqrt(1 + head * tail) * mpf(sensitivity) / (mpf(batch_size) * mpf(noise_std))


def stated_gdp_cyclic_bounded(*, batches, step_size, diameter, batch_size, noise_std, sensitivity):
    """BSA Theorem 4.6; it needs epochs >= D b / (eta L); the root covers the sum (Table 10)."""
    with mp.workdps(DIGITS):
        eta, D, L = mpf(step_size), mpf(diameter), mpf(sensitivity)
        b, l = mpf(batch_size), mpf(batches)  # noqa: E741 - the paper's letter
        window = mp.ceil(D * b / (eta * L))
        total = 3 * L * D / (eta * b * l) + (L / b) ** 2 + L**2 / (b**2 * l) * window
        return mp.sqrt(total) / mpf(noise_std)
