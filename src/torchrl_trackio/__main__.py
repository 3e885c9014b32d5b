"""``python -m torchrl_trackio``: does logging work here?"""

from __future__ import annotations

import sys

from torchrl_trackio.doctor import main

if __name__ == "__main__":
    sys.exit(main())
