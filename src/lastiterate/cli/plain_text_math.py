"""Formulas and emphasis of docstrings as plain text, for a terminal."""

import re

# ruff: noqa: RUF001 - Greek is meant

_ROLE = re.compile(r":math:`([^`]+)`")
_STRONG = re.compile(r"\*\*([^*]+)\*\*")
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[{}^_]|[A-Za-z]|[\d.]+|\s+|.", re.DOTALL)
_SYMBOLS = {
    "alpha": "α", "beta": "β", "delta": "δ", "varepsilon": "ε", "epsilon": "ε", "eta": "η",
    "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "rho": "ρ", "sigma": "σ", "tau": "τ",
    "Phi": "Φ", "Pi": "Π", "nabla": "∇", "le": "≤", "ge": "≥", "in": "∈", "sum": "∑",
    "otimes": "⊗", "bigotimes": "⨂", "cdot": "·", "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈",
    "rceil": "⌉", "infty": "∞", "dots": "..", "qquad": "  ", "times": "×", "to": "→",
}  # fmt: skip
_WORDS = ("min", "max", "log", "exp", "sup", "inf")
_RAISED = dict(zip("0123456789+-T", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ", strict=True))
_LOWERED = dict(zip("0123456789+-jkt", "₀₁₂₃₄₅₆₇₈₉₊₋ⱼₖₜ", strict=True))


def plain(text: str) -> str:
    r"""Markdown and LaTeX as they can be read without being set.

    >>> plain(r"**Bound.** :math:`\mu^2 \le \frac{1-c^T}{1+c}\sqrt{R}`.")
    'Bound. μ² ≤ (1-cᵀ)/(1+c) √R.'
    """
    text = _ROLE.sub(lambda found: formula(" ".join(found[1].split())), text)
    return _STRONG.sub(r"\1", text)


def formula(latex: str) -> str:
    r"""One formula in a line.

    >>> formula(r"\delta(\varepsilon) = \frac1l \sum_j \delta_{\mu_j}(\varepsilon)")
    'δ(ε) = 1/l ∑ⱼ δ_(μⱼ)(ε)'
    """
    tokens = _TOKEN.findall(latex)
    parts = []
    while tokens:
        parts.append(_next(tokens))
    return re.sub(r" {2,}", " ", "".join(parts)).strip()


def _next(tokens: list[str]) -> str:
    token = tokens.pop(0)
    if token == "{":
        inside = []
        while tokens and tokens[0] != "}":
            inside.append(_next(tokens))
        del tokens[:1]
        return "".join(inside)
    if token in "^_":
        return _moved(token, _argument(tokens))
    if not token.startswith("\\"):
        return token
    return _command(token[1:], tokens)


def _command(name: str, tokens: list[str]) -> str:
    if name in ("frac", "tfrac"):
        above, below = _argument(tokens), _argument(tokens)
        behind = " " if tokens and tokens[0] not in ")}^, " else ""
        return f"{_grouped(above)}/{_grouped(below, alone=True)}{behind}"
    if name == "sqrt":
        return f"√{_grouped(_argument(tokens))}"
    if name == "bar":
        return f"{_argument(tokens)}\u0304"
    if name in ("mathrm", "text", "operatorname"):
        return _argument(tokens)
    if name in _WORDS:
        return f"{name} " if tokens and tokens[0].isalnum() else name
    return _SYMBOLS.get(name, " " if name in (",", " ", ";") else "")


def _argument(tokens: list[str]) -> str:
    while tokens and tokens[0].isspace():
        del tokens[0]
    if tokens and tokens[0][0].isdigit() and len(tokens[0]) > 1:
        first, tokens[0] = tokens[0][0], tokens[0][1:]
        return first  # LaTeX takes one digit
    return _next(tokens) if tokens else ""


def _moved(how: str, inside: str) -> str:
    """Above or below the line, where there are characters for it."""
    signs = _RAISED if how == "^" else _LOWERED
    if inside and all(one in signs for one in inside):
        return "".join(signs[one] for one in inside)
    return f"{how}{inside if len(inside) == 1 else f'({inside})'}"


def _grouped(inside: str, *, alone: bool = False) -> str:
    """In brackets, unless it can be taken for nothing else; `alone` for a single name."""
    single = rf"[^\W\d][{''.join((*_RAISED.values(), *_LOWERED.values()))}]*|[\d.]+"
    return inside if re.fullmatch(single if alone else rf"\w+|{single}", inside) else f"({inside})"
