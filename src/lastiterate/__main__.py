"""python -m lastiterate"""

from __future__ import annotations

from lastiterate.cli import run

if __name__ == "__main__":
    run()


# python -m lastiterate.cli

if __name__ == "__main__":
    run()
