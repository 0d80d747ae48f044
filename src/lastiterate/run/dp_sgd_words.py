"""Words of DP-SGD libraries that a run has no place for, or another word."""

from collections.abc import Mapping
from typing import Any

from lastiterate.errors import InvalidParameter, InvalidType

# What makes steps other than plain ones, and the value with which it does not.
_OF_OTHER_STEPS = {
    "momentum": 0.0,
    "nesterov": False,
    "dampening": 0.0,
    "betas": None,
    "optimizer": "sgd",
    "optimiser": "sgd",
}
_HERE = {
    "lr": "step_size",
    "learning_rate": "step_size",
    "max_grad_norm": "clip_norm",
    "l2_norm_clip": "clip_norm",
    "sigma": "noise_multiplier",
    "n": "examples",
    "weight_decay": "loss=li.Loss(.., regulariser=..)",
    "delta": "li.account(run).epsilon(delta)",
    "target_delta": "li.account(run).epsilon(delta)",
}


def refuse_other_words(given: Mapping[str, Any]) -> None:
    """Says why, and what to say instead; what changes nothing passes."""
    for name, value in given.items():
        if name in _OF_OTHER_STEPS:
            plain = _OF_OTHER_STEPS[name]
            if value == plain or (isinstance(value, str) and value.lower() == plain):
                continue
            raise InvalidParameter(
                name,
                value,
                must_be="left out: a run is plain gradient steps, and with momentum or Adam the "
                "released model is not their last iterate; leave step_size and loss out, too, and "
                "every iterate is charged, which covers any optimizer",
            )
        must_be = f"said as {_HERE[name]}" if name in _HERE else "left out: no such argument"
        raise InvalidType(name, value, must_be=must_be)
