"""``python -m annotated_attention.doctor``."""

import sys

from annotated_attention.doctor.command import main

sys.exit(main())
