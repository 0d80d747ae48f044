"""python -m lastiterate"""

from lastiterate.cli import run

if __name__ == "__main__":
    run()
