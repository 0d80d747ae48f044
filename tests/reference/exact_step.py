"""Steps of noisy descent in 60 digits: losses, residuals, sums and projections, read literally.

It knows nothing of the library: an objective is its name and its numbers.
"""

import mpmath as mp

mp.mp.dps = 60


def residual(name, u, y, *, clip, kind="", width=1.0, guess=None):
    """The gradient of the clipped loss in the outputs; `guess` is where to look for an envelope."""
    c = mp.mpf(clip)
    if name == "Logistic":
        return [max(-c, min(c, 1 / (1 + mp.exp(-u[0])) - int(y)))]
    if name == "Huber":
        return [max(-c, min(c, u[0] - mp.mpf(float(y))))]
    if name == "SmoothedHinge":
        sign = 2 * int(y) - 1
        return [-sign * max(mp.mpf(0), min(c, (1 - sign * u[0]) / mp.mpf(width)))]
    top = max(u)
    powers = [mp.exp(v - top) for v in u]
    total = mp.fsum(powers)
    r = [v / total for v in powers]
    r[y] -= 1
    if clip >= 2**0.5:
        return r
    if kind == "margin":
        tau = c / mp.sqrt(2)
        return [v * min(mp.mpf(1), tau / -r[y]) for v in r]
    if mp.sqrt(mp.fsum(v * v for v in r)) <= c:
        return r
    return _envelope(u, y, c, guess)


def _envelope(u, y, c, guess):
    """Newton's method in log p and s, from a solution that is good to some digits."""
    others = [i for i in range(len(u)) if i != y]
    v = [u[i] - u[y] for i in others]

    def equations(*z):
        p, s = [mp.exp(a) for a in z[:-1]], z[-1]
        m = mp.fsum(p)
        common = s * m - mp.log(1 - m)
        found = [z[k] + s * p[k] + common - v[k] for k in range(len(p))]
        return [*found, m * m + mp.fsum(a * a for a in p) - c * c]

    p = [max(mp.mpf(float(guess[i])), mp.mpf(10) ** -40) for i in others]
    m, k = mp.fsum(p), max(range(len(p)), key=lambda k: p[k])
    s = (v[k] - mp.log(p[k]) + mp.log(1 - m)) / (p[k] + m)
    z = mp.findroot(equations, [*map(mp.log, p), s], tol=1e-80, maxsteps=60)
    found = [mp.mpf(0)] * len(u)
    for i, a in zip(others, list(z)[:-1], strict=True):
        found[i] = mp.exp(a)
    found[y] = -mp.fsum(found)
    return found


def projected(point, diameter):
    """The point, brought into a ball around 0."""
    if diameter is None:
        return point
    norm = mp.sqrt(mp.fsum(x * x for row in point for x in row))
    radius = mp.mpf(diameter) / 2
    return [[x * radius / norm for x in row] for row in point] if norm > radius else point


def step(point, rows, targets, *, loss, intercept, offset, size, l2, eta, diameter, guesses):
    """The step without noise; `rows` are lists of numbers, None for an example that is silent."""
    W = projected(point, diameter)
    outputs, width = len(W), len(W[0]) - (intercept > 0)
    total = [[mp.mpf(0)] * len(W[0]) for _ in W]
    for row, y, guess in zip(rows, targets, guesses, strict=True):
        if row is None:
            continue
        x = [*row, mp.mpf(intercept)] if len(W[0]) > width else row
        u = [mp.fdot(W[k], x) + mp.mpf(float(offset[k])) for k in range(outputs)]
        r = residual(**loss, u=u, y=y, guess=guess)
        for k in range(outputs):
            for j, entry in enumerate(x):
                total[k][j] += r[k] * entry
    return [
        [w - mp.mpf(eta) * (g / size + mp.mpf(l2) * w) for w, g in zip(*pair, strict=True)]
        for pair in zip(W, total, strict=True)
    ]


def distance(one, other):
    pairs = ((a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))
    return mp.sqrt(mp.fsum((a - b) ** 2 for a, b in pairs))
